/* Copies and memsets touch the host memory behind the addresses. They take no time on the timeline. */
#include <string.h>

#include "cuda_fake.h"

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    if (!fake_memory_is_addressable(to, bytes) || !from)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy((void *)(uintptr_t)to, from, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    if (!fake_memory_is_addressable(from, bytes) || !to)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (!fake_memory_is_addressable(to, bytes) || !fake_memory_is_addressable(from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    if (!fake_memory_is_addressable(to, count))
        return CUDA_ERROR_INVALID_VALUE;
    memset((void *)(uintptr_t)to, value, count);
    return CUDA_SUCCESS;
}

API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    if (!fake_memory_is_addressable(to, count * sizeof(value)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < count; index++)
        memcpy((char *)(uintptr_t)to + index * sizeof(value), &value, sizeof(value));
    return CUDA_SUCCESS;
}
