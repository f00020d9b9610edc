/*
 * A program with libcuda.so.1 as a dependency, as nvcc -cudart none -lcuda makes it.
 */
#include <stdio.h>

#include "hami/cuda_abi.h"

int main(void)
{
    CUcontext context;
    CUdeviceptr pointer;
    CUresult more, exactly;

    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        return 1;
    cuCtxSetCurrent(context);
    more = cuMemAlloc_v2(&pointer, (size_t)1001 << 20);
    exactly = cuMemAlloc_v2(&pointer, (size_t)1000 << 20);
    printf("1001 MiB: %d, 1000 MiB: %d\n", more, exactly);
    return 0;
}
