/*
 * The load of the limiter's acceptance tests: a program that keeps a device busy, and what the device did for it.
 *
 * Usage: limiter_load KERNEL SECONDS [streams=1] [graph=0] [pause_us=0] [threads=1]. KERNEL is a kernel of the fake driver. With
 * `graph` that many launches are captured and launched as one. With `pause_us` each launch is waited for and followed by a pause,
 * as in a program that needs less than its share. All threads use all streams. Prints one JSON object: the launches, and the
 * nanoseconds that the device was busy with this process in each second, by the fake driver's account.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"

enum { STREAMS_MAX = 64, SECONDS_MAX = 3600 };

/* About as much as the fake driver remembers. */
#define LOOK_NS 20000000u
#define SECOND_NS 1000000000u

typedef uint64_t truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns);

static struct {
    int seconds, streams, graph, pause_us, threads;
} wanted = {.streams = 1, .threads = 1};
static uint64_t busy_ns[SECONDS_MAX];
static _Atomic uint64_t launches, longest_ns;
static CUstream streams[STREAMS_MAX];
static CUgraphExec graph;
static CUfunction kernel;
static CUcontext context;
static uint64_t began_ns;

static void check(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "limiter_load: %s: %d\n", what, (int)result);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static void nap(uint64_t ns)
{
    struct timespec duration = {(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};

    clock_nanosleep(CLOCK_MONOTONIC, 0, &duration, NULL);
}

static CUresult launch(CUstream stream)
{
    if (graph)
        return cuGraphLaunch(graph, stream);
    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static void note_launch(uint64_t took_ns)
{
    uint64_t longest = longest_ns;

    launches++;
    while (took_ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, took_ns))
        continue;
}

static void *load(void *nothing)
{
    uint64_t until = began_ns + (uint64_t)wanted.seconds * SECOND_NS, now = now_ns(), then;

    (void)nothing;
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int next = 0; now < until; next++, now = then) {
        CUstream stream = streams[next % wanted.streams];

        check(launch(stream), "launch");
        if (wanted.pause_us) {
            check(cuStreamSynchronize(stream), "cuStreamSynchronize");
            nap((uint64_t)wanted.pause_us * 1000u);
        }
        then = now_ns();
        note_launch(then - now);
    }
    return NULL;
}

/* Ask in time, because the driver forgets. */
static void look(void)
{
    truth_busy_ns *truth = (truth_busy_ns *)dlsym(RTLD_DEFAULT, "fake_truth_busy_ns");
    uint64_t until = began_ns + (uint64_t)wanted.seconds * SECOND_NS;

    for (uint64_t from = began_ns; from < until; from += LOOK_NS) {
        uint64_t now = now_ns();

        if (from + LOOK_NS > now)
            nap(from + LOOK_NS - now);
        busy_ns[(from - began_ns) / SECOND_NS] += truth(0, (uint64_t)getpid(), from, from + LOOK_NS);
    }
}

static void prepare(const char *name)
{
    CUmodule module;
    CUgraph captured;

    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    check(cuModuleLoadData(&module, "kernels"), "cuModuleLoadData");
    check(cuModuleGetFunction(&kernel, module, name), name);
    for (int index = 0; index < wanted.streams; index++)
        check(cuStreamCreate(&streams[index], 1), "cuStreamCreate");
    if (!wanted.graph)
        return;
    check(cuStreamBeginCapture_v2(streams[0], 0), "cuStreamBeginCapture_v2");
    for (int index = 0; index < wanted.graph; index++)
        check(launch(streams[0]), "captured launch");
    check(cuStreamEndCapture(streams[0], &captured), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&graph, captured, 0), "cuGraphInstantiateWithFlags");
}

static void parse(int count, char **arguments)
{
    wanted.seconds = count > 2 ? atoi(arguments[2]) : 0;
    for (int index = 3; index < count; index++)
        if (sscanf(arguments[index], "streams=%d", &wanted.streams) != 1 &&
            sscanf(arguments[index], "graph=%d", &wanted.graph) != 1 &&
            sscanf(arguments[index], "pause_us=%d", &wanted.pause_us) != 1 &&
            sscanf(arguments[index], "threads=%d", &wanted.threads) != 1)
            wanted.seconds = 0;
    if (wanted.seconds > 0 && wanted.seconds <= SECONDS_MAX && wanted.streams > 0 && wanted.streams <= STREAMS_MAX)
        return;
    fprintf(stderr, "usage: limiter_load KERNEL SECONDS [streams=1] [graph=0] [pause_us=0] [threads=1]\n");
    exit(2);
}

int main(int count, char **arguments)
{
    pthread_t thread;

    parse(count, arguments);
    prepare(arguments[1]);
    began_ns = now_ns();
    for (int number = 0; number < wanted.threads; number++)
        if (pthread_create(&thread, NULL, load, NULL) != 0 || pthread_detach(thread) != 0)
            return 1;
    look();
    printf("{\"launches\": %llu, \"longest_ms\": %.1f, \"busy_ns\": [", (unsigned long long)launches, (double)longest_ns / 1e6);
    for (int second = 0; second < wanted.seconds; second++)
        printf("%s%llu", second ? ", " : "", (unsigned long long)busy_ns[second]);
    printf("]}\n");
    fflush(stdout);
    _exit(0);
}
