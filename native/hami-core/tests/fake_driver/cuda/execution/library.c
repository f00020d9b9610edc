/*
 * Libraries and kernels of the fake driver: modules and functions under the names that CUDA has for them since 12.0.
 *
 * A library is loaded into the current context at once. A kernel is its function, so that both can be launched.
 * Source: CUDA Driver API, "Library Management".
 */
#include "cuda/execution/execution.h"

typedef struct CUkern_st *CUkernel;

API CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *options, void **values, unsigned int count,
                               CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
    (void)options;
    (void)values;
    (void)count;
    (void)library_options;
    (void)library_values;
    (void)library_count;
    return cuModuleLoadData((CUmodule *)library, code);
}

API CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *path, CUjit_option *options, void **values, unsigned int count,
                                   CUlibraryOption *library_options, void **library_values, unsigned int library_count)
{
    return cuLibraryLoadData(library, path, options, values, count, library_options, library_values, library_count);
}

API CUresult cuLibraryUnload(CUlibrary library)
{
    return cuModuleUnload((CUmodule)library);
}

EXTRA(cuLibraryGetModule, CUmodule *module, CUlibrary library)
{
    if (!module || !library)
        return CUDA_ERROR_INVALID_VALUE;
    *module = (CUmodule)library;
    return CUDA_SUCCESS;
}

EXTRA(cuLibraryGetKernel, CUkernel *kernel, CUlibrary library, const char *name)
{
    return cuModuleGetFunction((CUfunction *)kernel, (CUmodule)library, name);
}

EXTRA(cuKernelGetFunction, CUfunction *function, CUkernel kernel)
{
    if (!function || !kernel)
        return CUDA_ERROR_INVALID_VALUE;
    *function = (CUfunction)kernel;
    return CUDA_SUCCESS;
}

/* What a kernel needs of its device. Every one needs the same. Source: CUDA Driver API, CUfunction_attribute. */
static int attribute_of(int attribute)
{
    enum { MAX_THREADS_PER_BLOCK = 0, NUM_REGS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };

    switch (attribute) {
    case MAX_THREADS_PER_BLOCK:
        return 1024;
    case NUM_REGS:
        return 32;
    case PTX_VERSION:
    case BINARY_VERSION:
        return 80;
    case MAX_DYNAMIC_SHARED_SIZE_BYTES:
        return 48 << 10;
    default:
        return 0;
    }
}

EXTRA(cuFuncGetAttribute, int *value, int attribute, CUfunction function)
{
    if (!value || !function)
        return CUDA_ERROR_INVALID_VALUE;
    *value = attribute_of(attribute);
    return CUDA_SUCCESS;
}

EXTRA(cuFuncSetAttribute, CUfunction function, int attribute, int value)
{
    (void)attribute;
    (void)value;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXTRA(cuKernelGetAttribute, int *value, int attribute, CUkernel kernel, CUdevice device)
{
    (void)device;
    return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

EXTRA(cuKernelSetAttribute, int attribute, int value, CUkernel kernel, CUdevice device)
{
    (void)device;
    return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}
