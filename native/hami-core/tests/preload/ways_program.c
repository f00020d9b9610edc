/*
 * Reaches functions that have no hook in every way, and prints the library that each way leads to. The output must be the same with
 * and without libvgpu.so.
 *
 *   ways_program ANOTHER_DRIVER DEEPLY_BOUND_LIBRARY
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "hami/cuda_abi.h"

/* A driver of another version has it. The linker finds it nowhere. */
CUresult cuNoSuchFunction(void) __attribute__((weak));

static void say(const char *way, const char *symbol, const void *found)
{
    Dl_info where;

    printf("%s %s: %s\n", way, symbol, found && dladdr(found, &where) ? strrchr(where.dli_fname, '/') + 1 : "nothing");
}

static void look_up(const char *symbol, void *handle, void *another)
{
    void *found = NULL;

    say("default", symbol, dlsym(RTLD_DEFAULT, symbol));
    say("next", symbol, dlsym(RTLD_NEXT, symbol));
    say("handle", symbol, dlsym(handle, symbol));
    say("another driver", symbol, dlsym(another, symbol));
    say("versioned", symbol, dlvsym(handle, symbol, "NONE_1.0"));
    cuGetProcAddress(symbol, &found, 12000, 0);
    say("cuGetProcAddress", symbol, found);
}

int main(int count, char **arguments)
{
    void *another = dlopen(count > 2 ? arguments[1] : "", RTLD_NOW);
    void *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    void *deep = dlopen(count > 2 ? arguments[2] : "", RTLD_LAZY | RTLD_DEEPBIND);
    const void *(*address_without_hook)(void) = (__typeof__(address_without_hook))dlsym(deep, "address_without_hook");
    CUstreamCaptureStatus status;
    CUdevice device;

    printf("calls: %d %d\n", cuCtxGetDevice(&device), cuStreamIsCapturing(NULL, &status));
    say("linked", "cuCtxGetDevice", (void *)cuCtxGetDevice);
    say("linked", "cuStreamIsCapturing", (void *)cuStreamIsCapturing);
    say("weak", "cuNoSuchFunction", (void *)cuNoSuchFunction);
    say("bound deeply", "cuCtxGetDevice", address_without_hook());
    look_up("cuCtxGetDevice", dlopen("libcuda.so.1", RTLD_NOW), another);
    look_up("cuStreamIsCapturing", dlopen("libcuda.so.1", RTLD_NOW), another);
    look_up("cuNoSuchFunction", dlopen("libcuda.so.1", RTLD_NOW), another);
    look_up("nvmlDeviceGetCount_v2", nvml, another);
    look_up("nvmlErrorString", nvml, another);
    return 0;
}
