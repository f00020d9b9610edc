/*
 * The hooks of modules, libraries, and the heaps that cuCtxSetLimit sizes.
 *
 * Only NVML can tell what they take, once it is taken. So a block is held before (overhead.h), and what passes the limit is
 * unloaded again.
 */
#include "blocks.h"
#include "devices.h"
#include "hooks.h"
#include "log.h"
#include "overhead.h"
#include "region.h"
#include "region_limits.h"

static CUresult note_change(CUresult result)
{
    if (result == CUDA_SUCCESS && !hami_inside)
        hami_overhead_changed();
    return result;
}

static CUresult refuse(int device)
{
    hami_log(HAMI_LOG_WARNING, "device %d: code or a heap refused: %llu of %llu bytes in use", device,
             (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * The body that loads code. `arguments` are the driver's, in parentheses; it returns the handle in `*made`. `unload` is the
 * driver's function that unloads it.
 */
#define LOAD(symbol, arguments, made, unload)                                               \
    do {                                                                                    \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                                 \
        int device_ = hami_current_device();                                                \
        CUresult result_;                                                                   \
                                                                                            \
        if (!hami_region_limit(device_))                                                    \
            return note_change(real_ arguments);                                            \
        if (!hami_overhead_hold(device_, HAMI_MEMORY_BLOCK))                                \
            return refuse(device_);                                                         \
        result_ = HAMI_INSIDE(real_ arguments);                                             \
        if (hami_overhead_settle(device_, HAMI_MEMORY_BLOCK, 1) || result_ != CUDA_SUCCESS) \
            return result_;                                                                 \
        HAMI_INSIDE(hami_real.unload(*(made)));                                             \
        hami_overhead_changed();                                                            \
        *(made) = NULL;                                                                     \
        return refuse(device_);                                                             \
    } while (0)

HAMI_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, (module, path), module, cuModuleUnload);
}

HAMI_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, (module, image), module, cuModuleUnload);
}

HAMI_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options,
                                        void **values)
{
    LOAD(cuModuleLoadDataEx, (module, image, count, options, values), module, cuModuleUnload);
}

HAMI_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *binary)
{
    LOAD(cuModuleLoadFatBinary, (module, binary), module, cuModuleUnload);
}

HAMI_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values,
                                       unsigned int count, CUlibraryOption *library_options, void **library_values,
                                       unsigned int library_count)
{
    LOAD(cuLibraryLoadData, (library, code, options, values, count, library_options, library_values, library_count), library,
         cuLibraryUnload);
}

HAMI_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values,
                                           unsigned int count, CUlibraryOption *library_options, void **library_values,
                                           unsigned int library_count)
{
    LOAD(cuLibraryLoadFromFile, (library, path, options, values, count, library_options, library_values, library_count), library,
         cuLibraryUnload);
}

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    return note_change(HAMI_REAL_CUDA(cuModuleUnload)(module));
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    return note_change(HAMI_REAL_CUDA(cuLibraryUnload)(library));
}

/* The new size of the heap or of printf's buffer is taken at once. The old one is given back after that. */
HAMI_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    __typeof__(&cuCtxSetLimit) real = HAMI_REAL_CUDA(cuCtxSetLimit);
    int device = hami_current_device();
    uint64_t held = limit == CU_LIMIT_MALLOC_HEAP_SIZE || limit == CU_LIMIT_PRINTF_FIFO_SIZE ? hami_whole_blocks(value) : 0;
    CUresult result;

    if (!held || !hami_region_limit(device))
        return note_change(real(limit, value));
    if (!hami_overhead_hold(device, held))
        return refuse(device);
    result = HAMI_INSIDE(real(limit, value));
    hami_overhead_settle(device, held, 0);
    return result;
}
