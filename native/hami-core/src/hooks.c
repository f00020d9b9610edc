#include "hooks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#include "entry.h"

enum { BUCKETS = 512, ANY = 0, PER_THREAD = 1 };

_Static_assert(HAMI_HOOKS * 2 < BUCKETS, "the hash tables are at most half full");

struct hami_real hami_real;
_Thread_local int hami_inside;

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS] = {
#define HOOK_CUSTOM(symbol, name, since, streams, ...) \
    {#symbol, #name, since, streams, HAMI_LIBRARY_CUDA, (void *)symbol, (void **)&hami_real.symbol},
#define HOOK_PASS HOOK_CUSTOM
#include "hooks_cuda.def"
#undef HOOK_CUSTOM
#define HOOK_CUSTOM(symbol, ...) {#symbol, NULL, 0, ANY, HAMI_LIBRARY_NVML, (void *)symbol, (void **)&hami_real.symbol},
#include "hooks_nvml.def"
#undef HOOK_PASS
#undef HOOK_CUSTOM
};

#define HOOK_CUSTOM(symbol, ...)
#define HOOK_PASS(symbol, name, since, streams, params, args)        \
    HAMI_EXPORT CUresult symbol params                               \
    {                                                                \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);           \
                                                                     \
        return real ? real args : CUDA_ERROR_NOT_FOUND;              \
    }
#include "hooks_cuda.def"
#undef HOOK_PASS
#define HOOK_PASS(symbol, params, args)                              \
    HAMI_EXPORT nvmlReturn_t symbol params                           \
    {                                                                \
        __typeof__(&symbol) real = HAMI_REAL_NVML(symbol);           \
                                                                     \
        return real ? real args : NVML_ERROR_FUNCTION_NOT_FOUND;     \
    }
#include "hooks_nvml.def"
#undef HOOK_PASS
#undef HOOK_CUSTOM

/* Tables of row numbers plus one; 0 is an empty bucket. */
static uint16_t by_symbol[BUCKETS];
static _Atomic uint16_t by_real[BUCKETS];
static pthread_once_t symbols_once = PTHREAD_ONCE_INIT;

static uint32_t hash_text(const char *text)
{
    uint32_t hash = 2166136261u;

    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash ^ hash >> 15;
}

static uint32_t hash_pointer(const void *pointer)
{
    return (uint32_t)((uint64_t)(uintptr_t)pointer * 0x9e3779b97f4a7c15u >> 40);
}

static void index_symbols(void)
{
    for (uint16_t row = 0; row < HAMI_HOOKS; row++) {
        uint32_t bucket = hash_text(hami_hook_rows[row].symbol) % BUCKETS;

        while (by_symbol[bucket])
            bucket = (bucket + 1) % BUCKETS;
        by_symbol[bucket] = (uint16_t)(row + 1);
    }
}

const struct hami_hook_row *hami_hook_of_symbol(const char *symbol)
{
    pthread_once(&symbols_once, index_symbols);
    for (uint32_t bucket = hash_text(symbol) % BUCKETS; by_symbol[bucket]; bucket = (bucket + 1) % BUCKETS) {
        const struct hami_hook_row *row = &hami_hook_rows[by_symbol[bucket] - 1];

        if (strcmp(row->symbol, symbol) == 0)
            return row;
    }
    return NULL;
}

const struct hami_hook_row *hami_hook_of_real(const void *function)
{
    uint16_t row;

    for (uint32_t bucket = hash_pointer(function) % BUCKETS; (row = atomic_load(&by_real[bucket])); bucket = (bucket + 1) % BUCKETS)
        if (*hami_hook_rows[row - 1].real == function)
            return &hami_hook_rows[row - 1];
    return NULL;
}

/* Several symbols may share one function: the first row wins, and they have one type then. */
static void index_real(uint16_t row)
{
    const void *function = *hami_hook_rows[row].real;
    uint32_t bucket = hash_pointer(function) % BUCKETS;

    if (!function || hami_hook_of_real(function))
        return;
    while (atomic_load(&by_real[bucket]))
        bucket = (bucket + 1) % BUCKETS;
    atomic_store(&by_real[bucket], (uint16_t)(row + 1));
}

static const char *const library_names[] = {"libcuda.so.1", "libnvidia-ml.so.1"};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_loaded[2];
static void *library_base[2];

/* A lookup that lands in this library means the driver lacks the symbol and the search went on to us. */
static void *real_symbol(void *handle, const char *symbol)
{
    void *found = hami_real_dlsym(handle, symbol);
    const struct hami_hook_row *row = hami_hook_of_symbol(symbol);

    return row && found == row->hook ? NULL : found;
}

static void look_up_cuda(void *handle)
{
#define HAMI_CALLED(symbol) hami_real.symbol = (__typeof__(&symbol))real_symbol(handle, #symbol);
    HAMI_CALLED_CUDA(HAMI_CALLED)
#undef HAMI_CALLED
    for (uint16_t row = 0; row < HAMI_HOOKS_CUDA; row++) {
        *hami_hook_rows[row].real = real_symbol(handle, hami_hook_rows[row].symbol);
        index_real(row);
    }
}

static void look_up_nvml(void *handle)
{
#define HAMI_CALLED(symbol) hami_real.symbol = (__typeof__(&symbol))real_symbol(handle, #symbol);
    HAMI_CALLED_NVML(HAMI_CALLED)
#undef HAMI_CALLED
    for (uint16_t row = HAMI_HOOKS_CUDA; row < HAMI_HOOKS; row++)
        *hami_hook_rows[row].real = real_symbol(handle, hami_hook_rows[row].symbol);
}

static void *base_of(const void *address)
{
    Dl_info info;

    return address && dladdr(address, &info) ? info.dli_fbase : NULL;
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
            library_base[library] = base_of((void *)hami_real.cuInit);
        } else {
            look_up_nvml(handle);
            library_base[library] = base_of((void *)hami_real.nvmlInit_v2);
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
    return library_base[library] && base_of(address) == library_base[library];
}
