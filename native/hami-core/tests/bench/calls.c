/*
 * Print the nanoseconds of each call, the median of several rounds, as one JSON object. Run it bare and with libvgpu.so preloaded,
 * and compare. Time is the thread's own, so other programs on the processors do not count.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"

enum { ROUNDS = 7, CALLS = 10000, LIVE = 10000 };

static CUfunction nothing;
static CUstream stream;
static CUgraphExec graph;
static CUdeviceptr live[LIVE];

static double now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
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

static void launch_graph(void)
{
    cuGraphLaunch(graph, stream);
}

/* A graph of one kernel. */
static CUresult capture(void)
{
    CUgraph captured;

    if (cuStreamBeginCapture_v2(stream, 0) != CUDA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    launch_on_stream();
    return cuStreamEndCapture(stream, &captured) == CUDA_SUCCESS ? cuGraphInstantiateWithFlags(&graph, captured, 0)
                                                                 : CUDA_ERROR_UNKNOWN;
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

static int by_size(const void *first, const void *second)
{
    double difference = *(const double *)first - *(const double *)second;

    return (difference > 0) - (difference < 0);
}

static double median_ns(void (*call)(void))
{
    double rounds[ROUNDS];

    for (int round = 0; round < ROUNDS; round++) {
        double began = now_ns();

        for (int index = 0; index < CALLS; index++)
            call();
        rounds[round] = (now_ns() - began) / CALLS;
    }
    qsort(rounds, ROUNDS, sizeof(rounds[0]), by_size);
    return rounds[ROUNDS / 2];
}

/* Make this many allocations, and measure one more. */
static double allocation_ns(int wanted)
{
    static int count;

    for (; count < wanted; count++)
        cuMemAlloc_v2(&live[count], 4096);
    return median_ns(allocate_and_free);
}

static void *stay(void *nothing)
{
    pause();
    return nothing;
}

int main(void)
{
    CUcontext context;
    pthread_t thread;
    CUmodule module;

    /* The C library's locks are cheaper in a process with one thread, and the library may start one. */
    if (pthread_create(&thread, NULL, stay, NULL) != 0)
        return 1;
    if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuModuleLoadData(&module, "") != CUDA_SUCCESS ||
        cuModuleGetFunction(&nothing, module, "busy_0") != CUDA_SUCCESS || cuStreamCreate(&stream, 1) != CUDA_SUCCESS ||
        capture() != CUDA_SUCCESS)
        return 1;
    printf("{\"launch\": %.1f", median_ns(launch));
    printf(", \"launch on a stream\": %.1f", median_ns(launch_on_stream));
    printf(", \"launch of a graph\": %.1f", median_ns(launch_graph));
    printf(", \"allocate and free, 1 live\": %.1f", allocation_ns(1));
    printf(", \"allocate and free, 100 live\": %.1f", allocation_ns(100));
    printf(", \"allocate and free, 10 000 live\": %.1f", allocation_ns(LIVE));
    printf(", \"cuMemGetInfo\": %.1f", median_ns(memory_view));
    printf(", \"cuGetProcAddress\": %.1f}\n", median_ns(proc_address));
    return 0;
}
