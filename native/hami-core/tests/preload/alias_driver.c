/*
 * A driver of which three symbols are the same function: two with a hook, and one without.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "hami/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT CUresult cuFuncLoad(CUmodule *module, const void *image) __attribute__((alias("cuModuleLoadData")));

EXPORT CUresult cuInit(unsigned int flags)
{
    (void)flags;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    (void)module;
    (void)image;
    return CUDA_SUCCESS;
}

EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *image) __attribute__((alias("cuModuleLoadData")));

EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                    CUdriverProcAddressQueryResult *status)
{
    (void)version;
    (void)flags;
    (void)status;
    *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD), symbol);
    return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
