#include "hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "entry.h"

enum { BUCKETS = 2048 };

_Static_assert(HAMI_HOOKS * 2 < BUCKETS, "the hash tables are at most half full");

struct hami_real hami_real;
_Thread_local int hami_inside;

/* What src/entry.S and this file share of each forward: the pointer to the driver's function, and the thunk. */
#define HOOK_CUSTOM(...)
#define HOOK_FORWARD(symbol, ...)                                             \
    extern void *hami_forward_##symbol __attribute__((visibility("hidden"))); \
    extern char hami_thunk_##symbol[] __attribute__((visibility("hidden")));  \
    void *hami_forward_##symbol;
#include "hooks_cuda.def"
#include "hooks_nvml.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS] = {
#define HOOK_CUSTOM(symbol, since) {#symbol, since, false, HAMI_LIBRARY_CUDA, (void *)symbol, (void **)&hami_real.symbol},
#define HOOK_FORWARD(symbol, since) {#symbol, since, true, HAMI_LIBRARY_CUDA, hami_thunk_##symbol, &hami_forward_##symbol},
#include "hooks_cuda.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM
#define HOOK_CUSTOM(symbol) {#symbol, 0, false, HAMI_LIBRARY_NVML, (void *)symbol, (void **)&hami_real.symbol},
#define HOOK_FORWARD(symbol) {#symbol, 0, true, HAMI_LIBRARY_NVML, hami_thunk_##symbol, &hami_forward_##symbol},
#include "hooks_nvml.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM
};

/* Tables of row numbers plus one; 0 is an empty bucket. */
static uint16_t by_symbol[BUCKETS], by_name[BUCKETS];
static uint16_t next_of_name[HAMI_HOOKS];
static _Atomic uint16_t by_real[BUCKETS];
static pthread_once_t symbols_once = PTHREAD_ONCE_INIT;

static uint32_t hash_text(const char *text, size_t length)
{
    uint32_t hash = 2166136261u;

    for (size_t index = 0; index < length; index++)
        hash = (hash ^ (unsigned char)text[index]) * 16777619u;
    return (hash ^ hash >> 15) % BUCKETS;
}

static uint32_t hash_pointer(const void *pointer)
{
    return (uint32_t)((uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u >> 40) % BUCKETS;
}

static bool is_per_thread_symbol(const char *symbol, size_t length)
{
    return length > 5 && (memcmp(symbol + length - 5, "_ptsz", 5) == 0 || memcmp(symbol + length - 5, "_ptds", 5) == 0);
}

/* How much of a symbol is what cuGetProcAddress calls it. */
static size_t name_length(const char *symbol)
{
    size_t length = strlen(symbol), digits;

    if (is_per_thread_symbol(symbol, length))
        length -= 5;
    digits = length;
    while (symbol[digits - 1] >= '0' && symbol[digits - 1] <= '9')
        digits--;
    return digits < length && symbol[digits - 1] == 'v' && symbol[digits - 2] == '_' ? digits - 2 : length;
}

static bool has_name(const struct hami_hook_row *row, const char *name, size_t length)
{
    return strncmp(row->symbol, name, length) == 0 && name_length(row->symbol) == length;
}

static void index_symbol(uint16_t row)
{
    const char *symbol = hami_hook_rows[row].symbol;
    size_t length = name_length(symbol);
    uint32_t bucket = hash_text(symbol, strlen(symbol));

    while (by_symbol[bucket])
        bucket = (bucket + 1) % BUCKETS;
    by_symbol[bucket] = (uint16_t)(row + 1);
    bucket = hash_text(symbol, length);
    while (by_name[bucket] && !has_name(&hami_hook_rows[by_name[bucket] - 1], symbol, length))
        bucket = (bucket + 1) % BUCKETS;
    next_of_name[row] = by_name[bucket];
    by_name[bucket] = (uint16_t)(row + 1);
}

static void index_symbols(void)
{
    for (uint16_t row = 0; row < HAMI_HOOKS; row++)
        index_symbol(row);
}

const struct hami_hook_row *hami_hook_of_symbol(const char *symbol)
{
    pthread_once(&symbols_once, index_symbols);
    for (uint32_t bucket = hash_text(symbol, strlen(symbol)); by_symbol[bucket]; bucket = (bucket + 1) % BUCKETS) {
        const struct hami_hook_row *row = &hami_hook_rows[by_symbol[bucket] - 1];

        if (strcmp(row->symbol, symbol) == 0)
            return row;
    }
    return NULL;
}

/* The number plus one of the last row of a name; next_of_name leads to the others. */
static uint16_t rows_of_name(const char *name)
{
    size_t length = strlen(name);
    uint32_t bucket = hash_text(name, length);

    pthread_once(&symbols_once, index_symbols);
    while (by_name[bucket] && !has_name(&hami_hook_rows[by_name[bucket] - 1], name, length))
        bucket = (bucket + 1) % BUCKETS;
    return by_name[bucket];
}

const struct hami_hook_row *hami_hook_of_name(const char *name, int version, bool is_per_thread)
{
    const struct hami_hook_row *best[2] = {NULL, NULL};

    for (uint16_t number = rows_of_name(name); number; number = next_of_name[number - 1]) {
        const struct hami_hook_row *row = &hami_hook_rows[number - 1];
        const struct hami_hook_row **newest = &best[is_per_thread_symbol(row->symbol, strlen(row->symbol))];

        if (row->since <= version && (!*newest || row->since > (*newest)->since))
            *newest = row;
    }
    return is_per_thread && best[true] ? best[true] : best[false];
}

const struct hami_hook_row *hami_hook_of_answer(const char *name, const void *function)
{
    uint16_t number;

    for (number = rows_of_name(name); number; number = next_of_name[number - 1])
        if (*hami_hook_rows[number - 1].real == function)
            return &hami_hook_rows[number - 1];
    for (uint32_t bucket = hash_pointer(function); (number = atomic_load(&by_real[bucket])); bucket = (bucket + 1) % BUCKETS)
        if (*hami_hook_rows[number - 1].real == function)
            return &hami_hook_rows[number - 1];
    return NULL;
}

static void index_real(uint16_t row)
{
    uint32_t bucket = hash_pointer(*hami_hook_rows[row].real);

    while (atomic_load(&by_real[bucket]))
        bucket = (bucket + 1) % BUCKETS;
    atomic_store(&by_real[bucket], (uint16_t)(row + 1));
}

static const char *const library_names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_loaded[2];
static struct {
    uintptr_t from, to;
} code[2];

/* A lookup that lands in this library means the driver lacks the symbol and the search went on to us. */
static void *real_symbol(void *handle, const char *symbol)
{
    const struct hami_hook_row *row = hami_hook_of_symbol(symbol);
    void *found = hami_real_dlsym(handle, symbol);

    return row && found == row->hook ? NULL : found;
}

static void look_up_rows(void *handle, uint16_t from, uint16_t to)
{
    for (uint16_t row = from; row < to; row++) {
        void *found = hami_real_dlsym(handle, hami_hook_rows[row].symbol);

        *hami_hook_rows[row].real = found == hami_hook_rows[row].hook ? NULL : found;
    }
}

static void look_up_cuda(void *handle)
{
#define HAMI_CALLED(symbol) hami_real.symbol = (__typeof__(&symbol))real_symbol(handle, #symbol);
    HAMI_CALLED_CUDA(HAMI_CALLED)
#undef HAMI_CALLED
    look_up_rows(handle, 0, HAMI_HOOKS_CUDA);
    for (uint16_t row = 0; row < HAMI_HOOKS_CUDA; row++)
        if (*hami_hook_rows[row].real)
            index_real(row);
}

static void look_up_nvml(void *handle)
{
#define HAMI_CALLED(symbol) hami_real.symbol = (__typeof__(&symbol))real_symbol(handle, #symbol);
    HAMI_CALLED_NVML(HAMI_CALLED)
#undef HAMI_CALLED
    look_up_rows(handle, HAMI_HOOKS_CUDA, HAMI_HOOKS);
}

/* The addresses of a library's segments, which start where it is mapped. */
static void note_code(enum hami_library library, const void *function)
{
    const ElfW(Ehdr) *header;
    const ElfW(Phdr) *segments;
    Dl_info info;

    if (!function || !dladdr(function, &info))
        return;
    header = info.dli_fbase;
    segments = (const ElfW(Phdr) *)((uintptr_t)header + header->e_phoff);
    code[library].from = (uintptr_t)header;
    for (int index = 0; index < header->e_phnum; index++)
        if (segments[index].p_type == PT_LOAD)
            code[library].to = (uintptr_t)header + segments[index].p_vaddr + segments[index].p_memsz;
}

static bool look_up(enum hami_library library, int mode)
{
    void *handle;

    if (atomic_load_explicit(&is_loaded[library], memory_order_acquire))
        return true;
    handle = dlopen(library_names[library], RTLD_LAZY | mode);
    if (!handle)
        return false;
    pthread_mutex_lock(&mutex);
    if (!is_loaded[library]) {
        if (library == HAMI_LIBRARY_CUDA) {
            look_up_cuda(handle);
            note_code(library, (void *)hami_real.cuInit);
        } else {
            look_up_nvml(handle);
            note_code(library, (void *)hami_real.nvmlInit_v2);
        }
        atomic_store_explicit(&is_loaded[library], true, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return true;
}

bool hami_hooks_load(enum hami_library library)
{
    return look_up(library, 0);
}

bool hami_hooks_find(enum hami_library library)
{
    return look_up(library, RTLD_NOLOAD);
}

bool hami_is_driver_code(enum hami_library library, const void *address)
{
    return (uintptr_t)address >= code[library].from && (uintptr_t)address < code[library].to;
}

static CUresult no_cuda_function(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

static nvmlReturn_t no_nvml_function(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

void *hami_forward_target(void **real)
{
    enum hami_library library = HAMI_LIBRARY_CUDA;

    for (int row = 0; row < HAMI_HOOKS; row++)
        if (hami_hook_rows[row].real == real)
            library = hami_hook_rows[row].library;
    hami_hooks_load(library);
    if (*real)
        return *real;
    return library == HAMI_LIBRARY_CUDA ? (void *)no_cuda_function : (void *)no_nvml_function;
}
