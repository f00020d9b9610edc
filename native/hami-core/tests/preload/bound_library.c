/*
 * A library of a program that reaches the driver in each way: by calls, by addresses in its data, and by lookups.
 */
#include <dlfcn.h>
#include <stddef.h>

#include "hami/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

typedef CUresult allocate_type(CUdeviceptr *pointer, size_t bytes);

static allocate_type *const addresses[] = {cuMemAlloc_v2};

EXPORT int allocate_by_call(size_t bytes);
EXPORT int allocate_by_address(size_t bytes);
EXPORT int allocate_by_lookup(size_t bytes);
EXPORT const void *address_without_hook(void);

int allocate_by_call(size_t bytes)
{
    CUdeviceptr pointer;

    return cuMemAlloc_v2(&pointer, bytes);
}

int allocate_by_address(size_t bytes)
{
    CUdeviceptr pointer;

    return ((allocate_type *volatile const *)addresses)[0](&pointer, bytes);
}

int allocate_by_lookup(size_t bytes)
{
    allocate_type *allocate = (allocate_type *)dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
    CUdeviceptr pointer;

    return allocate(&pointer, bytes);
}

const void *address_without_hook(void)
{
    return (void *)cuCtxGetDevice;
}
