#include "hooks.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "dlsym.h"
#include "objects.h"

enum { BUCKETS = 512 };

_Static_assert(HAMI_HOOKS * 2 < BUCKETS, "the hash table is at most half full");

#define MISSING_CUDA(symbol, ...) .symbol = (void *)hami_missing_cuda,
#define MISSING_NVML(symbol) .symbol = (void *)hami_missing_nvml,
struct hami_real hami_real = {
#define HOOK MISSING_CUDA
#include "hooks_cuda.def"
#undef HOOK
#define HOOK MISSING_NVML
#include "hooks_nvml.def"
#undef HOOK
    HAMI_CALLED_CUDA(MISSING_CUDA) HAMI_CALLED_NVML(MISSING_NVML)};
#undef MISSING_NVML
#undef MISSING_CUDA

_Thread_local int hami_inside;

CUresult hami_missing_cuda(void)
{
    return CUDA_ERROR_NOT_FOUND;
}

nvmlReturn_t hami_missing_nvml(void)
{
    return NVML_ERROR_FUNCTION_NOT_FOUND;
}

/* A hash table of row numbers plus one, by name; 0 is an empty bucket. next_of_name leads to the other rows of a name. */
static uint16_t by_name[BUCKETS], next_of_name[HAMI_HOOKS];
static pthread_once_t names_once = PTHREAD_ONCE_INIT;

static uint32_t hash_text(const char *text, size_t length)
{
    uint32_t hash = 2166136261u;

    for (size_t index = 0; index < length; index++)
        hash = (hash ^ (unsigned char)text[index]) * 16777619u;
    return (hash ^ hash >> 15) % BUCKETS;
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

/* Return the bucket of a name, which may be empty. */
static uint16_t *bucket_of(const char *name, size_t length)
{
    uint32_t bucket = hash_text(name, length);

    while (by_name[bucket] && !has_name(&hami_hook_rows[by_name[bucket] - 1], name, length))
        bucket = (bucket + 1) % BUCKETS;
    return &by_name[bucket];
}

static void index_names(void)
{
    for (uint16_t row = 0; row < HAMI_HOOKS; row++) {
        const char *symbol = hami_hook_rows[row].symbol;
        uint16_t *bucket = bucket_of(symbol, name_length(symbol));

        next_of_name[row] = *bucket;
        *bucket = (uint16_t)(row + 1);
    }
}

/* Return the number plus one of the last row of a name. */
static uint16_t rows_of_name(const char *name, size_t length)
{
    pthread_once(&names_once, index_names);
    return *bucket_of(name, length);
}

const struct hami_hook_row *hami_hook_of_symbol(const char *symbol)
{
    for (uint16_t number = rows_of_name(symbol, name_length(symbol)); number; number = next_of_name[number - 1])
        if (strcmp(hami_hook_rows[number - 1].symbol, symbol) == 0)
            return &hami_hook_rows[number - 1];
    return NULL;
}

const struct hami_hook_row *hami_hook_of_name(const char *name, int version, bool is_per_thread)
{
    const struct hami_hook_row *best[2] = {NULL, NULL};

    for (uint16_t number = rows_of_name(name, strlen(name)); number; number = next_of_name[number - 1]) {
        const struct hami_hook_row *row = &hami_hook_rows[number - 1];
        const struct hami_hook_row **newest = &best[is_per_thread_symbol(row->symbol, strlen(row->symbol))];

        if (row->since <= version && (!*newest || row->since > (*newest)->since))
            *newest = row;
    }
    return is_per_thread && best[true] ? best[true] : best[false];
}

const struct hami_hook_row *hami_hook_of_answer(const char *name, const void *function)
{
    for (uint16_t number = rows_of_name(name, strlen(name)); number; number = next_of_name[number - 1]) {
        const struct hami_hook_row *row = &hami_hook_rows[number - 1];

        if (row->hook == function || hami_hook_real(row) == function)
            return row;
    }
    for (uint16_t row = 0; row < HAMI_HOOKS; row++)
        if (hami_hook_real(&hami_hook_rows[row]) == function)
            return &hami_hook_rows[row];
    return NULL;
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

    if (!HAMI_HAS(function) || !dladdr(function, &info))
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
    void *missing = library == HAMI_LIBRARY_CUDA ? (void *)hami_missing_cuda : (void *)hami_missing_nvml;

    if (found && !is_code_of(OWN_CODE, found))
        __atomic_compare_exchange_n(real, &missing, found, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static void fill_rows(enum hami_library library)
{
    for (uint16_t row = 0; row < HAMI_HOOKS; row++)
        if (hami_hook_rows[row].library == library)
            fill(library, hami_hook_rows[row].symbol, hami_hook_rows[row].real);
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

/*
 * Open the driver's library. A program that is linked to one of another version (libcuda.so.570) has its other functions from there,
 * so a call of a hook uses that one. A lookup loads nothing.
 */
static void *open_library(enum hami_library library, bool is_call)
{
    const char *name = library_names[library], *other;
    void *handle = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);

    if (handle || !is_call)
        return handle;
    other = hami_object_file(name, strlen(name) - strlen(".1"));
    return dlopen(other ? other : name, RTLD_LAZY);
}

static bool look_up(enum hami_library library, bool is_call)
{
    void *handle;

    if (atomic_load_explicit(&hami_is_loaded[library], memory_order_acquire))
        return true;
    handle = open_library(library, is_call);
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
    return look_up(library, true);
}

bool hami_hooks_find(enum hami_library library)
{
    return look_up(library, false);
}

void *hami_hook_real(const struct hami_hook_row *row)
{
    void *real = __atomic_load_n(row->real, __ATOMIC_RELAXED);

    return HAMI_HAS(real) ? real : NULL;
}
