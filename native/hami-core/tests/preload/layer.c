/*
 * A library that replaces functions and calls the next one, as profilers and OpenMP runtimes do. Built twice, with different LAYER.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "hami/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT void say_layers(void);
EXPORT CUresult cuInit(unsigned int flags);

void say_layers(void)
{
    void (*next)(void) = (__typeof__(next))dlsym(RTLD_NEXT, "say_layers");

    printf("%s\n", LAYER);
    fflush(stdout);
    if (next)
        next();
}

CUresult cuInit(unsigned int flags)
{
    __typeof__(&cuInit) next = (__typeof__(next))dlsym(RTLD_NEXT, "cuInit");

    printf("cuInit in %s\n", LAYER);
    fflush(stdout);
    return next ? next(flags) : CUDA_ERROR_NOT_FOUND;
}
