/*
 * Green contexts: parts of a device's primary context, which they retain. Here they divide nothing, take a granule, and differ from
 * the primary context only by their handle.
 */
#include <stdlib.h>

#include "cuda/fake.h"

struct CUgreenCtx_st {
    CUdevice device;
    CUcontext primary;
};

API CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice device, unsigned int flags)
{
    CUresult result = fake_check_device(device, green);
    CUcontext primary;

    (void)flags;
    if (result != CUDA_SUCCESS || !resources)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    result = cuDevicePrimaryCtxRetain(&primary, device);
    if (result != CUDA_SUCCESS)
        return result;
    *green = malloc(sizeof(**green));
    if (*green && hw_memory_take(primary->physical, HW_GRANULE_BYTES)) {
        **green = (struct CUgreenCtx_st){device, primary};
        return CUDA_SUCCESS;
    }
    free(*green);
    cuDevicePrimaryCtxRelease_v2(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    CUdevice device;

    if (!green)
        return CUDA_ERROR_INVALID_CONTEXT;
    device = green->device;
    hw_memory_give(green->primary->physical, HW_GRANULE_BYTES);
    free(green);
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
    if (!context || !green)
        return CUDA_ERROR_INVALID_VALUE;
    *context = green->primary;
    return CUDA_SUCCESS;
}
