/*
 * The load of the limiter's acceptance tests: a program that keeps a device busy, and what the device did for it.
 *
 * Usage: limiter_load KERNEL SECONDS [OPTION=NUMBER...]. KERNEL is a kernel of the fake driver. All threads use all streams.
 *
 *   streams, threads, device   how many, by default 1; the device's ordinal, by default 0
 *   graph                      that many launches are captured and launched as one
 *   burst                      so many launches are one request; by default 1
 *   kinds                      so many kernels are launched in turn, out of order. Each is a microsecond longer than another, and the
 *                              shortest is KERNEL
 *   spread                     only so many of them have different lengths; by default all
 *   known                      each of them is followed by so many launches of KERNEL itself
 *   passes                     1: all streams are waited for after each turn through the kinds, and it is printed how long that took
 *   reload                     the kinds are loaded again for each turn, 1: as new ones, 2: after the old ones were unloaded
 *   pause_us                   each request is waited for and followed by a pause, as in a program that needs less than its share
 *   sms                        grids of one block, one a multiprocessor, eight a multiprocessor and the most possible, in turn
 *   persistent                 1: a kernel that does not end, on half of the device and a stream of its own, is launched first
 *   host_us                    a host function that takes so long follows each request
 *   rank                       1 or 2: after each request its stream waits until the other rank's is as far; they meet in the file
 *                              `steps` of FAKE_DRIVER_DIR, which has room for two numbers of 64 bits
 *
 * Prints one JSON object: the launches in each second, the longest call, the latency of each of the last requests that were
 * waited for, the duration of each turn through the kinds that was, and the nanoseconds that the device was busy with this process
 * in each second, by the fake driver's account.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"

enum { STREAMS_MAX = 64, SECONDS_MAX = 3600, LATENCIES_MAX = 4096, KINDS_MAX = 4096, PASSES_MAX = 1024 };

/* Kinds follow each other in steps of this many. It is a prime, so each has its turn. */
enum { KIND_STEP = 1361 };

/* How long a rank sleeps before it looks again whether the other one has come. */
#define MEETING_NS 50000u

/* About as much as the fake driver remembers. */
#define LOOK_NS 20000000u
#define SECOND_NS 1000000000u

typedef uint64_t truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns);

static int seconds, device, graph_launches, pause_us, sms, is_persistent, host_us, rank, known, passes, reload;
static const char *kernel_name;
static int stream_count = 1, thread_count = 1, burst = 1, kind_count = 1, spread = KINDS_MAX;
static const struct {
    const char *name;
    int *value;
} options[] = {
    {"streams", &stream_count},
    {"threads", &thread_count},
    {"device", &device},
    {"graph", &graph_launches},
    {"burst", &burst},
    {"kinds", &kind_count},
    {"spread", &spread},
    {"known", &known},
    {"passes", &passes},
    {"reload", &reload},
    {"pause_us", &pause_us},
    {"persistent", &is_persistent},
    {"host_us", &host_us},
    {"sms", &sms},
    {"rank", &rank},
};
static uint64_t busy_ns[SECONDS_MAX], latencies_ns[LATENCIES_MAX], passes_ns[PASSES_MAX];
static _Atomic uint64_t launches[SECONDS_MAX + 1], requests, passed, longest_ns;
static uint64_t *steps;
static CUstream streams[STREAMS_MAX];
static CUgraphExec graphs[KINDS_MAX];
static CUfunction kernels[KINDS_MAX];
static CUmodule module;
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

/* Launch a kind. `number` counts the launches. */
static CUresult launch(CUstream stream, int kind, int number)
{
    unsigned int many = (unsigned int)sms;
    unsigned int grids[] = {1, many, many * 8, INT_MAX};

    if (graphs[kind])
        return cuGraphLaunch(graphs[kind], stream);
    if (!sms)
        return cuLaunchKernel(kernels[kind], 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
    return cuLaunchKernel(kernels[kind], grids[number % 4], 1, 1, 1024, 1, 1, 0, stream, NULL, NULL);
}

static void note_launch(uint64_t now, uint64_t took_ns)
{
    uint64_t longest = longest_ns, second = (now - began_ns) / SECOND_NS;

    launches[second < SECONDS_MAX ? second : SECONDS_MAX]++;
    while (took_ns > longest && !atomic_compare_exchange_weak(&longest_ns, &longest, took_ns))
        continue;
}

static void work_on_host(void *nothing)
{
    (void)nothing;
    nap((uint64_t)host_us * 1000u);
}

static void meet(void *nothing)
{
    uint64_t mine = __atomic_add_fetch(&steps[rank - 1], 1, __ATOMIC_SEQ_CST);

    (void)nothing;
    while (__atomic_load_n(&steps[2 - rank], __ATOMIC_SEQ_CST) < mine)
        nap(MEETING_NS);
}

/* Wait for a request that began at some time, and pause. */
static void end_request(CUstream stream, uint64_t from_ns)
{
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    latencies_ns[requests++ % LATENCIES_MAX] = now_ns() - from_ns;
    nap((uint64_t)pause_us * 1000u);
}

static void launch_and_note(CUstream stream, int kind, int number)
{
    uint64_t then = now_ns(), now;

    check(launch(stream, kind, number), "launch");
    now = now_ns();
    note_launch(now, now - then);
}

static void request(CUstream stream, int number)
{
    uint64_t began = now_ns();

    for (int index = 0; index < burst; index++)
        launch_and_note(stream, (int)((int64_t)number * KIND_STEP % kind_count), number / kind_count + index);
    for (int index = 0; index < known; index++)
        launch_and_note(stream, 0, index);
    if (host_us)
        check(cuLaunchHostFunc(stream, work_on_host, NULL), "cuLaunchHostFunc");
    if (rank)
        check(cuLaunchHostFunc(stream, meet, NULL), "cuLaunchHostFunc");
    if (pause_us)
        end_request(stream, began);
}

/* Ask in time, because the driver forgets. */
static void look(void)
{
    truth_busy_ns *truth = (truth_busy_ns *)dlsym(RTLD_DEFAULT, "fake_truth_busy_ns");
    uint64_t until = began_ns + (uint64_t)seconds * SECOND_NS;

    for (uint64_t from = began_ns; from < until; from += LOOK_NS) {
        uint64_t now = now_ns();

        if (from + LOOK_NS > now)
            nap(from + LOOK_NS - now);
        busy_ns[(from - began_ns) / SECOND_NS] += truth(device, (uint64_t)getpid(), from, from + LOOK_NS);
    }
}

static CUgraphExec graph_of(int kind)
{
    CUgraphExec graph;
    CUgraph captured;

    check(cuStreamBeginCapture_v2(streams[0], 0), "cuStreamBeginCapture_v2");
    for (int index = 0; index < graph_launches; index++)
        check(launch(streams[0], kind, index), "captured launch");
    check(cuStreamEndCapture(streams[0], &captured), "cuStreamEndCapture");
    check(cuGraphInstantiateWithFlags(&graph, captured, 0), "cuGraphInstantiateWithFlags");
    check(cuGraphDestroy(captured), "cuGraphDestroy");
    return graph;
}

/* Return the name of a kind's kernel: KERNEL, or if there are several KERNEL with another length. */
static const char *name_of(int kind, char buffer[64])
{
    const char *part = strchr(kernel_name, '@');

    if (kind_count == 1)
        return kernel_name;
    snprintf(buffer, 64, "busy_%d%s", atoi(kernel_name + strlen("busy_")) + kind % spread, part ? part : "");
    return buffer;
}

static void load_kinds(void)
{
    char buffer[64];

    check(cuModuleLoadData(&module, "kernels"), "cuModuleLoadData");
    for (int kind = 0; kind < kind_count; kind++) {
        const char *name = name_of(kind, buffer);

        check(cuModuleGetFunction(&kernels[kind], module, name), name);
        if (graph_launches)
            graphs[kind] = graph_of(kind);
    }
}

static void unload_kinds(void)
{
    for (int kind = 0; kind < kind_count && graph_launches; kind++) {
        check(cuGraphExecDestroy(graphs[kind]), "cuGraphExecDestroy");
        graphs[kind] = NULL;
    }
    check(cuModuleUnload(module), "cuModuleUnload");
}

/* End a turn through the kinds that began at some time. */
static void end_pass(uint64_t from_ns)
{
    for (int index = 0; passes && index < stream_count; index++)
        check(cuStreamSynchronize(streams[index]), "cuStreamSynchronize");
    if (passes && passed < PASSES_MAX)
        passes_ns[passed++] = now_ns() - from_ns;
    if (!reload)
        return;
    if (reload == 2)
        unload_kinds();
    load_kinds();
}

static void *load(void *nothing)
{
    uint64_t until = began_ns + (uint64_t)seconds * SECOND_NS, from = began_ns;

    (void)nothing;
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int next = 0; now_ns() < until; next++) {
        request(streams[next % stream_count], next);
        if ((next + 1) % kind_count)
            continue;
        end_pass(from);
        from = now_ns();
    }
    return NULL;
}

static void launch_persistent(void)
{
    char name[64];
    CUfunction persistent;
    CUstream stream;

    snprintf(name, sizeof(name), "busy_%d000000@50", 2 * seconds);
    check(cuModuleGetFunction(&persistent, module, name), name);
    check(cuStreamCreate(&stream, 1), "cuStreamCreate");
    check(cuLaunchKernel(persistent, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL), name);
}

static void open_steps(void)
{
    char path[PATH_MAX];
    int file;

    snprintf(path, sizeof(path), "%s/steps", getenv("FAKE_DRIVER_DIR"));
    file = open(path, O_RDWR | O_CLOEXEC);
    steps = mmap(NULL, 2 * sizeof(*steps), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0 && steps != MAP_FAILED)
        return;
    perror(path);
    exit(1);
}

static void prepare(void)
{
    check(cuInit(0), "cuInit");
    check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    for (int index = 0; index < stream_count; index++)
        check(cuStreamCreate(&streams[index], 1), "cuStreamCreate");
    load_kinds();
    if (is_persistent)
        launch_persistent();
    if (rank)
        open_steps();
}

static bool is_option(const char *argument)
{
    for (size_t index = 0; index < sizeof(options) / sizeof(options[0]); index++) {
        size_t length = strlen(options[index].name);

        if (strncmp(argument, options[index].name, length) == 0 && argument[length] == '=') {
            *options[index].value = atoi(argument + length + 1);
            return *options[index].value >= 0;
        }
    }
    return false;
}

static void parse(int count, char **arguments)
{
    bool is_known = true;

    kernel_name = arguments[1];
    seconds = count > 2 ? atoi(arguments[2]) : 0;
    for (int index = 3; index < count; index++)
        is_known &= is_option(arguments[index]);
    if (is_known && seconds > 0 && seconds <= SECONDS_MAX && stream_count > 0 && stream_count <= STREAMS_MAX && rank <= 2 &&
        kind_count > 0 && kind_count <= KINDS_MAX && spread > 0)
        return;
    fprintf(stderr, "usage: limiter_load KERNEL SECONDS [OPTION=NUMBER...]\n");
    exit(2);
}

static void print_numbers(const char *name, const uint64_t *numbers, uint64_t count)
{
    printf(", \"%s\": [", name);
    for (uint64_t index = 0; index < count; index++)
        printf("%s%llu", index ? ", " : "", (unsigned long long)numbers[index]);
    printf("]");
}

int main(int count, char **arguments)
{
    pthread_t thread;
    uint64_t launched[SECONDS_MAX];

    parse(count, arguments);
    prepare();
    began_ns = now_ns();
    for (int number = 0; number < thread_count; number++)
        if (pthread_create(&thread, NULL, load, NULL) != 0 || pthread_detach(thread) != 0)
            return 1;
    look();
    for (int second = 0; second < seconds; second++)
        launched[second] = launches[second];
    printf("{\"longest_ms\": %.1f", (double)longest_ns / 1e6);
    print_numbers("launches", launched, (uint64_t)seconds);
    print_numbers("busy_ns", busy_ns, (uint64_t)seconds);
    print_numbers("passes_ns", passes_ns, passed);
    print_numbers("latencies_ns", latencies_ns, requests < LATENCIES_MAX ? requests : LATENCIES_MAX);
    printf("}\n");
    fflush(stdout);
    _exit(0);
}
