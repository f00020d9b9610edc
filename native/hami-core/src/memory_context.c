/*
 * Contexts and modules: made, charged for (memory_overhead.h), and ended again when they pass the limit.
 *
 * The end of a context ends what was allocated in it.
 */
#include "hooks.h"
#include "limiter.h"
#include "log.h"
#include "memory.h"
#include "memory_overhead.h"
#include "memory_pool.h"
#include "process.h"
#include "region.h"

/* The body that makes a context on a device; `call` is the driver's, `undo` ends what it made. */
#define CREATE(symbol, ordinal, is_wanted, call, undo)                                    \
    do {                                                                                  \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                \
        int device = real && context && !hami_inside ? hami_process_device(ordinal) : -1; \
        struct hami_overhead_before before;                                               \
        CUresult result;                                                                  \
                                                                                          \
        if (!real)                                                                        \
            return CUDA_ERROR_NOT_FOUND;                                                  \
        if (device < 0 || !(is_wanted))                                                   \
            return call;                                                                  \
        if (!hami_overhead_begin(device, &before))                                        \
            return CUDA_ERROR_OUT_OF_MEMORY;                                              \
        result = HAMI_INSIDE(call);                                                       \
        if (hami_overhead_end(device, &before, result == CUDA_SUCCESS ? *context : NULL)) \
            return result;                                                                \
        HAMI_INSIDE(undo);                                                                \
        if (hami_real.cuCtxSetCurrent)                                                    \
            HAMI_INSIDE(hami_real.cuCtxSetCurrent(before.current));                       \
        hami_overhead_discharge(*context);                                                \
        *context = NULL;                                                                  \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                  \
    } while (0)

#define DESTROY_AGAIN (hami_real.cuCtxDestroy_v2 ? hami_real.cuCtxDestroy_v2(*context) : CUDA_ERROR_NOT_FOUND)

HAMI_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v2, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int count, unsigned int flags,
                                    CUdevice ordinal)
{
    CREATE(cuCtxCreate_v3, ordinal, true, real(context, affinities, count, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v4, ordinal, true, real(context, params, flags, ordinal), DESTROY_AGAIN);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 0;

    return hami_real.cuDevicePrimaryCtxGetState &&
           HAMI_INSIDE(hami_real.cuDevicePrimaryCtxGetState(ordinal, &flags, &active)) == CUDA_SUCCESS && active;
}

static CUresult release_primary(CUdevice ordinal)
{
    return hami_real.cuDevicePrimaryCtxRelease_v2 ? hami_real.cuDevicePrimaryCtxRelease_v2(ordinal) : CUDA_ERROR_NOT_FOUND;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CREATE(cuDevicePrimaryCtxRetain, ordinal, !primary_is_active(ordinal), real(context, ordinal), release_primary(ordinal));
}

/* Ending contexts, which frees what was allocated in them */

#define DESTROY(symbol)                                    \
    do {                                                   \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol); \
        CUresult result;                                   \
                                                           \
        if (!real)                                         \
            return CUDA_ERROR_NOT_FOUND;                   \
        hami_limiter_end_context(context);                 \
        result = HAMI_INSIDE(real(context));               \
        if (result == CUDA_SUCCESS && !hami_inside)        \
            hami_overhead_discharge(context);              \
        return result;                                     \
    } while (0)

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY(cuCtxDestroy);
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY(cuCtxDestroy_v2);
}

/* The handle of a primary context that is active, without keeping it. */
static CUcontext primary_of(CUdevice ordinal)
{
    CUcontext context = NULL;

    if (hami_inside || !hami_real.cuDevicePrimaryCtxRetain || !primary_is_active(ordinal) ||
        HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRetain(&context, ordinal)) != CUDA_SUCCESS)
        return NULL;
    HAMI_INSIDE(release_primary(ordinal));
    return context;
}

/* A reset empties a primary context, the last release ends it; whether a reset also ends it is the driver's to say. */
static void settle_primary(CUdevice ordinal, CUcontext context, bool is_emptied)
{
    bool is_ended = !primary_is_active(ordinal);

    if (!is_emptied && !is_ended)
        return;
    hami_memory_end_context(context);
    hami_pools_end_device(hami_process_device(ordinal));
    if (is_ended)
        hami_overhead_discharge(context);
}

#define END_PRIMARY(symbol, is_emptied)                    \
    do {                                                   \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol); \
        CUcontext context;                                 \
        CUresult result;                                   \
                                                           \
        if (!real)                                         \
            return CUDA_ERROR_NOT_FOUND;                   \
        context = primary_of(ordinal);                     \
        hami_limiter_end_context(context);                 \
        result = HAMI_INSIDE(real(ordinal));               \
        if (result == CUDA_SUCCESS && context)             \
            settle_primary(ordinal, context, is_emptied);  \
        return result;                                     \
    } while (0)

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, true);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset, true);
}

/*
 * How much modules, libraries and the heaps of a context take only NVML can tell, once it is there: a module that passes the limit is
 * unloaded again.
 */
#define LOAD(symbol, unload, made, ...)                                                                     \
    do {                                                                                                    \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                                  \
        int device = real ? hami_process_current_device() : -1;                                             \
        CUresult result;                                                                                    \
                                                                                                            \
        if (!real)                                                                                          \
            return CUDA_ERROR_NOT_FOUND;                                                                    \
        if (!hami_region_limit(device))                                                                     \
            return settle_change(real(made, __VA_ARGS__));                                                  \
        if (!hami_overhead_hold(device, HAMI_MEMORY_BLOCK))                                                 \
            return refuse(device);                                                                          \
        result = HAMI_INSIDE(real(made, __VA_ARGS__));                                                      \
        if (hami_overhead_settle(device, HAMI_MEMORY_BLOCK) || result != CUDA_SUCCESS || !hami_real.unload) \
            return result;                                                                                  \
        HAMI_INSIDE(hami_real.unload(*(made)));                                                             \
        hami_overhead_changed();                                                                            \
        *(made) = NULL;                                                                                     \
        return refuse(device);                                                                              \
    } while (0)

static CUresult settle_change(CUresult result)
{
    if (result == CUDA_SUCCESS && !hami_inside)
        hami_overhead_changed();
    return result;
}

static CUresult refuse(int device)
{
    hami_log(HAMI_LOG_WARNING, "code or a heap refused on device %d: %llu of %llu in use", device,
             (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

HAMI_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, cuModuleUnload, module, path);
}

HAMI_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, cuModuleUnload, module, image);
}

HAMI_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    LOAD(cuModuleLoadDataEx, cuModuleUnload, module, image, count, options, values);
}

HAMI_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *binary)
{
    LOAD(cuModuleLoadFatBinary, cuModuleUnload, module, binary);
}

HAMI_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int count,
                                       CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
    LOAD(cuLibraryLoadData, cuLibraryUnload, library, code, options, values, count, library_options, library_values, library_count);
}

HAMI_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                                           unsigned int library_count)
{
    LOAD(cuLibraryLoadFromFile, cuLibraryUnload, library, path, options, values, count, library_options, library_values,
         library_count);
}

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    HAMI_SETTLE(cuModuleUnload, settle_change, module);
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    HAMI_SETTLE(cuLibraryUnload, settle_change, library);
}

/* What the heap and the buffer of printf are set to is taken at once; what they had before goes when it has succeeded. */
HAMI_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    __typeof__(&cuCtxSetLimit) real = HAMI_REAL_CUDA(cuCtxSetLimit);
    int device = real ? hami_process_current_device() : -1;
    uint64_t held = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ? hami_memory_blocks(value) : 0;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (!held || !hami_region_limit(device))
        return settle_change(real(limit, value));
    if (!hami_overhead_hold(device, held))
        return refuse(device);
    result = HAMI_INSIDE(real(limit, value));
    hami_overhead_settle(device, held);
    return result;
}
