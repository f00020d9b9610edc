/*
 * Code and what else a context sets aside: modules, libraries, and the heaps that cuCtxSetLimit sizes.
 *
 * How much they take only NVML can tell, once it is there: a block is held before (memory_overhead.h), and what passes the limit is
 * unloaded again.
 */
#include "hooks.h"
#include "log.h"
#include "memory.h"
#include "memory_overhead.h"
#include "process.h"
#include "region.h"

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
