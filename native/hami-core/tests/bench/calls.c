/* Nanoseconds of each call, the best of several rounds, as one JSON object. Run bare and with libvgpu.so preloaded, and compare. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"

enum { ROUNDS = 7, CALLS = 20000, LIVE = 10000 };

static CUfunction nothing;
static CUstream stream;
static CUdeviceptr live[LIVE];

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static void launch(void)
{
    cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
}

static void launch_on_stream(void)
{
    cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void allocate_and_free(void)
{
    CUdeviceptr pointer;

    if (cuMemAlloc_v2(&pointer, 4096) == CUDA_SUCCESS)
        cuMemFree_v2(pointer);
}

static void memory_view(void)
{
    size_t available, total;

    cuMemGetInfo_v2(&available, &total);
}

static void proc_address(void)
{
    CUdriverProcAddressQueryResult status;
    void *function;

    cuGetProcAddress_v2("cuMemAlloc", &function, 12000, 0, &status);
}

static double best_ns(void (*call)(void))
{
    double best = 1e18;

    for (int round = 0; round < ROUNDS; round++) {
        double began = now_ns();

        for (int index = 0; index < CALLS; index++)
            call();
        if (now_ns() - began < best)
            best = now_ns() - began;
    }
    return best / CALLS;
}

static void *stay(void *nothing)
{
    pause();
    return nothing;
}

int main(void)
{
    CUcontext context;
    double began;
    pthread_t thread;
    CUmodule module;

    /* The C library's locks cost less in a process of one thread, and the library may start one. */
    if (pthread_create(&thread, NULL, stay, NULL) != 0)
        return 1;
    began = now_ns();
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    printf("{\"init_us\": %.1f", (now_ns() - began) / 1e3);
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS ||
        cuModuleLoadData(&module, "") != CUDA_SUCCESS || cuModuleGetFunction(&nothing, module, "busy_0") != CUDA_SUCCESS ||
        cuStreamCreate(&stream, 1) != CUDA_SUCCESS)
        return 1;
    printf(", \"launch_ns\": %.1f", best_ns(launch));
    printf(", \"launch_on_stream_ns\": %.1f", best_ns(launch_on_stream));
    printf(", \"alloc_free_ns\": %.1f", best_ns(allocate_and_free));
    for (int index = 0; index < LIVE; index++)
        cuMemAlloc_v2(&live[index], 4096);
    printf(", \"alloc_free_10000_live_ns\": %.1f", best_ns(allocate_and_free));
    printf(", \"mem_get_info_ns\": %.1f", best_ns(memory_view));
    printf(", \"get_proc_address_ns\": %.1f}\n", best_ns(proc_address));
    return 0;
}
