#include "hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "dlsym.h"
#include "entry.h"

enum { BUCKETS = 2048 };

_Static_assert(HAMI_HOOKS * 2 < BUCKETS, "the hash tables are at most half full");

struct hami_real hami_real;
_Thread_local int hami_inside;

#define HOOK_CUSTOM(...)
#define HOOK_FORWARD(symbol, ...) void *hami_forward_##symbol;
#include "hooks_cuda.def"
#include "hooks_nvml.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM

/* Hash tables of row numbers plus one; 0 is an empty bucket. */
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

/* Return the length of the name that cuGetProcAddress uses for a symbol. */
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
    if (hami_hook_rows[row].library != HAMI_LIBRARY_CUDA)
        return;
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

/* Return the number plus one of the last row of a name. next_of_name leads to the other rows. */
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

    for (number = rows_of_name(name); number; number = next_of_name[number - 1]) {
        const struct hami_hook_row *row = &hami_hook_rows[number - 1];

        if (row->hook == function || hami_hook_real(row) == function)
            return row;
    }
    for (uint32_t bucket = hash_pointer(function); (number = atomic_load(&by_real[bucket])); bucket = (bucket + 1) % BUCKETS)
        if (*hami_hook_rows[number - 1].real == function)
            return &hami_hook_rows[number - 1];
    return NULL;
}

/* Several threads may do this at once: each finds the row in its bucket, or puts it there. */
static void index_real(uint16_t row)
{
    uint32_t bucket = hash_pointer(*hami_hook_rows[row].real);
    uint16_t there = 0;

    while (!atomic_compare_exchange_strong(&by_real[bucket], &there, (uint16_t)(row + 1)) && there != row + 1) {
        bucket = (bucket + 1) % BUCKETS;
        there = 0;
    }
}

static const char *const library_names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
_Atomic bool hami_is_loaded[2];
static _Atomic(void *) handles[2];
static struct {
    _Atomic uintptr_t from, to;
} code[3]; /* the driver's libraries, and this one */

enum { OWN_CODE = 2 };

/* Note the addresses of the library that contains a function. */
static void note_code(int library, const void *function)
{
    uintptr_t start, end = 0;
    const ElfW(Phdr) *segments;
    Dl_info info;

    if (!function || !dladdr(function, &info))
        return;
    start = (uintptr_t)info.dli_fbase;
    segments = (const ElfW(Phdr) *)(start + ((const ElfW(Ehdr) *)start)->e_phoff);
    for (int index = 0; index < ((const ElfW(Ehdr) *)start)->e_phnum; index++)
        if (segments[index].p_type == PT_LOAD)
            end = start + segments[index].p_vaddr + segments[index].p_memsz;
    atomic_store(&code[library].from, start);
    atomic_store(&code[library].to, end);
}

static bool is_code_of(int library, const void *address)
{
    return (uintptr_t)address >= atomic_load_explicit(&code[library].from, memory_order_relaxed) &&
           (uintptr_t)address < atomic_load_explicit(&code[library].to, memory_order_relaxed);
}

bool hami_is_driver_code(enum hami_library library, const void *address)
{
    return is_code_of(library, address);
}

/*
 * Fill a pointer to a real function. If the lookup finds this library's own function, the driver lacks the symbol. Threads that
 * fill a pointer at the same time find the same function, and only the first writes it.
 */
static void fill(enum hami_library library, const char *symbol, void **real)
{
    void *found = hami_real_dlsym(atomic_load(&handles[library]), symbol);
    void *empty = NULL;

    if (found && !is_code_of(OWN_CODE, found))
        __atomic_compare_exchange_n(real, &empty, found, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void fill_rows(enum hami_library library)
{
    for (uint16_t row = 0; row < HAMI_HOOKS; row++) {
        if (hami_hook_rows[row].library != library || hami_hook_rows[row].is_forward)
            continue;
        fill(library, hami_hook_rows[row].symbol, hami_hook_rows[row].real);
        if (library == HAMI_LIBRARY_CUDA && *hami_hook_rows[row].real)
            index_real(row);
    }
}

static void fill_called(enum hami_library library)
{
#define FILL_CUDA(symbol) fill(HAMI_LIBRARY_CUDA, #symbol, (void **)&hami_real.symbol);
#define FILL_NVML(symbol) fill(HAMI_LIBRARY_NVML, #symbol, (void **)&hami_real.symbol);
    if (library == HAMI_LIBRARY_CUDA) {
        HAMI_CALLED_CUDA(FILL_CUDA)
        note_code(library, (void *)hami_real.cuInit);
    } else {
        HAMI_CALLED_NVML(FILL_NVML)
        note_code(library, (void *)hami_real.nvmlInit_v2);
    }
#undef FILL_NVML
#undef FILL_CUDA
}

static bool look_up(enum hami_library library, int mode)
{
    void *handle;

    if (atomic_load_explicit(&hami_is_loaded[library], memory_order_acquire))
        return true;
    handle = dlopen(library_names[library], RTLD_LAZY | mode);
    if (!handle)
        return false;
    atomic_store(&handles[library], handle);
    note_code(OWN_CODE, (void *)look_up);
    fill_rows(library);
    fill_called(library);
    atomic_store_explicit(&hami_is_loaded[library], true, memory_order_release);
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

void *hami_hook_real(const struct hami_hook_row *row)
{
    static _Atomic bool is_sought[HAMI_HOOKS];
    _Atomic bool *sought = &is_sought[row - hami_hook_rows];

    if (row->is_forward && !atomic_load_explicit(sought, memory_order_acquire)) {
        fill(row->library, row->symbol, row->real);
        atomic_store_explicit(sought, true, memory_order_release);
    }
    return __atomic_load_n(row->real, __ATOMIC_RELAXED);
}

void hami_hooks_find_all(void)
{
    const bool is_here[] = {hami_hooks_find(HAMI_LIBRARY_CUDA), hami_hooks_find(HAMI_LIBRARY_NVML)};

    for (int row = 0; row < HAMI_HOOKS; row++)
        if (is_here[hami_hook_rows[row].library])
            hami_hook_real(&hami_hook_rows[row]);
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
    const struct hami_hook_row *row = hami_hook_rows;
    void *found;

    while (row->real != real)
        row++;
    found = hami_hooks_load(row->library) ? hami_hook_real(row) : NULL;
    if (found)
        return found;
    return row->library == HAMI_LIBRARY_CUDA ? (void *)no_cuda_function : (void *)no_nvml_function;
}

/* The one NVML function that returns text, and so cannot return an error code. */
HAMI_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    __typeof__(&nvmlErrorString) real = HAMI_REAL_NVML(nvmlErrorString);

    return real ? real(result) : "NVML is not installed";
}
