/*
 * Random programs under libvgpu.so: its account of each device must equal what the driver has given.
 *
 * Usage: random_programs SEED COUNT. Each program is up to three processes that allocate, free, share, fork and are killed at
 * random. The account is compared whenever all of them pause, and when they have ended. The seed identifies a program:
 * random_programs SEED 1 runs it alone. The environment is that of a container: the library preloaded, a fake node, a limit.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"
#include "judge.h"

enum { WORKERS_MAX = 3, PHASES = 3, STEPS = 24, HELD_MAX = 64 };

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)

/* What the processes of a program share. */
struct stage {
    atomic_int paused[WORKERS_MAX]; /* the phase that a worker has finished */
    atomic_int go;                  /* the phase that may begin */
    atomic_bool has_offer;
    CUipcMemHandle offer; /* from worker 0 to the others; it keeps the memory until its end */
};

static struct stage *stage;
static unsigned int state;
static int self, victim;

static unsigned int chance(unsigned int below)
{
    state = state * 1664525u + 1013904223u;
    return (state >> 8) % below;
}

static size_t some_bytes(void)
{
    switch (chance(4)) {
    case 0:
        return 1 + chance(4 * KIB);
    case 1:
        return 1 + chance(MIB);
    case 2:
        return MIB + chance(3 * MIB);
    default:
        return (1 + chance(32)) * MIB;
    }
}

/* What a worker has */

enum kind { PLAIN, POOLED, ARRAY, MIPMAP, POOL, MAPPED, HANDLE, EXECUTABLE, OPENED, CONTEXT, KINDS };

struct held {
    enum kind kind;
    union {
        CUdeviceptr pointer;
        CUarray array;
        CUmipmappedArray mipmap;
        CUmemoryPool pool;
        CUmemGenericAllocationHandle handle;
        CUgraphExec executable;
        CUcontext context;
    };
    size_t bytes;
    CUmemoryPool from; /* POOLED: NULL for the device's default pool */
    CUgraph graph;
    CUdeviceptr in_graph;
};

static struct held held[HELD_MAX];
static int held_count;
static CUcontext primary[DEVICES];
static int device; /* of the current primary context */
static CUmodule module;

/* Only requests for memory may be refused. */
static bool succeeds(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("%s answers %d", what, (int)result);
    return result == CUDA_SUCCESS;
}

#define CHECKED(call) succeeds((call), #call)

static struct held *room(enum kind kind)
{
    if (held_count == HELD_MAX)
        return NULL;
    held[held_count].kind = kind;
    return &held[held_count];
}

static void remove_at(int index)
{
    held[index] = held[--held_count];
}

static int find(enum kind kind)
{
    int start = held_count ? (int)chance((unsigned int)held_count) : 0;

    for (int offset = 0; offset < held_count; offset++)
        if (held[(start + offset) % held_count].kind == kind)
            return (start + offset) % held_count;
    return -1;
}

/* Steps that allocate */

static void take_plain(void)
{
    struct held *fresh = room(PLAIN);
    size_t pitch;
    bool is_taken;

    if (!fresh)
        return;
    switch (chance(4)) {
    case 0:
        is_taken = CHECKED(cuMemAllocPitch_v2(&fresh->pointer, &pitch, 1 + chance(3000), 1 + chance(2000), 4));
        break;
    case 1:
        is_taken = CHECKED(cuMemAllocManaged(&fresh->pointer, some_bytes(), 1));
        break;
    default:
        is_taken = CHECKED(cuMemAlloc_v2(&fresh->pointer, some_bytes()));
    }
    held_count += is_taken;
}

static void take_pooled(void)
{
    struct held *fresh = room(POOLED);
    int pool = find(POOL);

    if (!fresh)
        return;
    fresh->from = pool >= 0 && chance(2) ? held[pool].pool : NULL;
    if (fresh->from)
        held_count += CHECKED(cuMemAllocFromPoolAsync(&fresh->pointer, some_bytes(), fresh->from, NULL));
    else
        held_count += CHECKED(cuMemAllocAsync(&fresh->pointer, some_bytes(), NULL));
}

static void take_pool(void)
{
    CUmemPoolProps properties = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    cuuint64_t keep = UINT64_MAX;
    struct held *fresh = room(POOL);

    if (!fresh || !CHECKED(cuMemPoolCreate(&fresh->pool, &properties)))
        return;
    if (chance(2))
        CHECKED(cuMemPoolSetAttribute(fresh->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    held_count++;
}

static void take_array(void)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 1 + chance(2000), .Height = chance(1000), .Format = 0x20, .NumChannels = 1u << chance(3)};
    struct held *fresh = room(chance(2) ? ARRAY : MIPMAP);

    if (!fresh)
        return;
    descriptor.Depth = descriptor.Height ? chance(4) : 0;
    if (fresh->kind == ARRAY)
        held_count += CHECKED(cuArray3DCreate_v2(&fresh->array, &descriptor));
    else
        held_count += CHECKED(cuMipmappedArrayCreate(&fresh->mipmap, &descriptor, 1 + chance(6)));
}

static void take_mapped(void)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
    CUmemGenericAllocationHandle handle, again;
    struct held *fresh = room(MAPPED);

    if (!fresh)
        return;
    fresh->bytes = (1 + chance(8)) * GRANULE;
    if (!CHECKED(cuMemCreate(&handle, fresh->bytes, &properties, 0)))
        return;
    if (!CHECKED(cuMemAddressReserve(&fresh->pointer, fresh->bytes, 0, 0, 0)) ||
        !CHECKED(cuMemMap(fresh->pointer, fresh->bytes, 0, handle, 0)))
        fail("no address for %zu bytes", fresh->bytes);
    held_count++;
    if (chance(2) && (fresh = room(HANDLE)) &&
        CHECKED(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)held[held_count - 1].pointer))) {
        fresh->handle = again;
        held_count++;
    }
    if (chance(3) == 0) {
        int file;

        if (CHECKED(cuMemExportToShareableHandle(&file, handle, 1, 0))) {
            if (CHECKED(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, 1)))
                CHECKED(cuMemRelease(again));
            close(file);
        }
    }
    CHECKED(cuMemRelease(handle));
}

static void take_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
                                         .bytesize = some_bytes()};
    struct held *fresh = room(EXECUTABLE);
    CUgraphNode node, last;

    if (!fresh || !CHECKED(cuGraphCreate(&fresh->graph, 0)))
        return;
    if (!CHECKED(cuGraphAddMemAllocNode(&node, fresh->graph, NULL, 0, &params)))
        return;
    if (chance(2)) {
        CHECKED(cuGraphAddMemFreeNode(&last, fresh->graph, &node, 1, params.dptr));
        params.dptr = 0;
    }
    if (!CHECKED(cuGraphInstantiateWithFlags(&fresh->executable, fresh->graph, 0)))
        return;
    fresh->in_graph = params.dptr;
    if (CHECKED(cuGraphLaunch(fresh->executable, NULL))) {
        held_count++;
        return;
    }
    CHECKED(cuGraphExecDestroy(fresh->executable));
    CHECKED(cuGraphDestroy(fresh->graph));
}

static void take_offer(void)
{
    struct held *fresh = room(OPENED);

    if (self == 0 || !fresh || !atomic_load(&stage->has_offer) || find(OPENED) >= 0)
        return;
    held_count += CHECKED(cuIpcOpenMemHandle_v2(&fresh->pointer, stage->offer, 1));
}

static void take_context(void)
{
    struct held *fresh = room(CONTEXT);

    if (!fresh || find(CONTEXT) >= 0 || !CHECKED(cuCtxCreate_v2(&fresh->context, 0, device)))
        return;
    held_count++;
    for (unsigned int count = chance(4); count; count--) {
        CUdeviceptr pointer; /* ends with its context */

        CHECKED(cuMemAlloc_v2(&pointer, some_bytes()));
    }
    CHECKED(cuCtxSetCurrent(primary[device]));
}

/* Steps that free */

static void give(int index);

/* The driver does not say how long a destroyed pool keeps unused memory, so what came from it is freed with it. */
static void give_pooled(CUmemoryPool from)
{
    for (int index = held_count - 1; index >= 0; index--)
        if (held[index].kind == POOLED && held[index].from == from)
            give(index);
}

static void give(int index)
{
    struct held one = held[index];

    remove_at(index);
    switch (one.kind) {
    case PLAIN:
        CHECKED(cuMemFree_v2(one.pointer));
        break;
    case POOLED:
        CHECKED(chance(3) ? cuMemFreeAsync(one.pointer, NULL) : cuMemFree_v2(one.pointer));
        break;
    case ARRAY:
        CHECKED(cuArrayDestroy(one.array));
        break;
    case MIPMAP:
        CHECKED(cuMipmappedArrayDestroy(one.mipmap));
        break;
    case POOL:
        if (chance(2))
            give_pooled(one.pool);
        CHECKED(cuMemPoolDestroy(one.pool));
        give_pooled(one.pool);
        break;
    case MAPPED:
        CHECKED(cuMemUnmap(one.pointer, one.bytes));
        CHECKED(cuMemAddressFree(one.pointer, one.bytes));
        break;
    case HANDLE:
        CHECKED(cuMemRelease(one.handle));
        break;
    case EXECUTABLE:
        if (one.in_graph)
            CHECKED(chance(2) ? cuMemFreeAsync(one.in_graph, NULL) : cuMemFree_v2(one.in_graph));
        CHECKED(cuGraphExecDestroy(one.executable));
        CHECKED(cuGraphDestroy(one.graph));
        break;
    case OPENED:
        CHECKED(cuIpcCloseMemHandle(one.pointer));
        break;
    case CONTEXT:
        CHECKED(cuCtxDestroy_v2(one.context));
        CHECKED(cuCtxSetCurrent(primary[device]));
        break;
    default:
        break;
    }
}

static void give_any(void)
{
    if (held_count)
        give((int)chance((unsigned int)held_count));
}

/* Other steps */

static void trim(void)
{
    int pool = find(POOL);

    if (pool >= 0)
        CHECKED(cuMemPoolTrimTo(held[pool].pool, chance(2) * 32 * MIB));
    CHECKED(cuDeviceGraphMemTrim(device));
}

static void change_device(void)
{
    device = (int)chance(DEVICES);
    CHECKED(cuCtxSetCurrent(primary[device]));
}

static void load(void)
{
    if (module)
        CHECKED(cuModuleUnload(module));
    module = NULL;
    if (chance(2))
        CHECKED(cuModuleLoadData(&module, "image"));
}

/*
 * A child of a process that uses CUDA has none of its memory, and its end changes nothing. A process that will be killed has no
 * child, because the driver takes the parent for alive while a child keeps its files.
 */
static void beget(void)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        CUdeviceptr pointer;

        if (cuMemAlloc_v2(&pointer, MIB) == CUDA_SUCCESS)
            fail("a forked child allocates");
        for (int index = 0; index < held_count; index++)
            if (held[index].kind == PLAIN)
                cuMemFree_v2(held[index].pointer);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status)
        fail("a forked child ends with %d", status);
}

static void step(void)
{
    static void (*const steps[])(void) = {take_plain,  take_plain, take_plain, take_pooled,  take_pooled,   take_pool, take_array,
                                          take_mapped, take_graph, take_offer, take_context, give_any,      give_any,  give_any,
                                          give_any,    give_any,   give_any,   trim,         change_device, load};

    if (chance(200) == 0 && self != victim)
        beget();
    else
        steps[chance(sizeof(steps) / sizeof(steps[0]))]();
}

/* What is not settled at once is settled later: pools by a synchronisation, and then unloaded code by a query. */
static void settle(void)
{
    size_t available, total;
    CUmodule passing;

    for (int ordinal = 0; ordinal < DEVICES; ordinal++) {
        CHECKED(cuCtxSetCurrent(primary[ordinal]));
        CHECKED(cuCtxSynchronize());
        if (CHECKED(cuModuleLoadData(&passing, "image")))
            CHECKED(cuModuleUnload(passing));
        if (!CHECKED(cuMemGetInfo_v2(&available, &total)) || available > total)
            fail("%zu of %zu bytes are free", available, total);
    }
    CHECKED(cuCtxSetCurrent(primary[device]));
}

static void pause_until(int phase)
{
    atomic_store(&stage->paused[self], phase);
    while (atomic_load(&stage->go) < phase)
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

static void offer(void)
{
    CUdeviceptr pointer;

    if (self != 0 || chance(2) || !CHECKED(cuMemAlloc_v2(&pointer, some_bytes())))
        return;
    if (CHECKED(cuIpcGetMemHandle(&stage->offer, pointer)))
        atomic_store(&stage->has_offer, true);
}

static void work(unsigned int seed)
{
    bool has_room = true;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    state = seed;
    if (cuInit(0) != CUDA_SUCCESS)
        fail("cuInit fails");
    for (int ordinal = DEVICES - 1; ordinal >= 0; ordinal--)
        has_room &= CHECKED(cuDevicePrimaryCtxRetain(&primary[ordinal], ordinal)) && CHECKED(cuCtxSetCurrent(primary[ordinal]));
    if (has_room)
        offer();
    for (int phase = 1; phase <= PHASES; phase++) {
        for (int count = 0; has_room && count < STEPS; count++)
            step();
        if (has_room)
            settle();
        pause_until(phase);
    }
    while (held_count && chance(4))
        give(held_count - 1);
    exit(0);
}

/* One program */

static void compare(unsigned int seed, const char *when)
{
    for (int ordinal = 0; ordinal < DEVICES; ordinal++) {
        struct verdict verdict = judge_ask(ordinal);
        uint64_t apart = verdict.accounted > verdict.truth ? verdict.accounted - verdict.truth : verdict.truth - verdict.accounted;

        if (apart > GRANULE)
            fail("program %u, %s: device %d has %.1f MiB, accounted for are %.1f", seed, when, ordinal, (double)verdict.truth / MIB,
                 (double)verdict.accounted / MIB);
        if (verdict.peak > verdict.limit)
            fail("program %u, %s: device %d had %.1f MiB, the limit is %.1f", seed, when, ordinal, (double)verdict.peak / MIB,
                 (double)verdict.limit / MIB);
    }
}

static void wait_for(unsigned int seed, pid_t *workers, int phase)
{
    double began = seconds_now();

    for (int worker = 0; worker < WORKERS_MAX; worker++) {
        while (workers[worker] && atomic_load(&stage->paused[worker]) < phase) {
            int status;

            if (waitpid(workers[worker], &status, WNOHANG) == workers[worker])
                fail("program %u: worker %d ends with %#x in phase %d", seed, worker, (unsigned int)status, phase);
            if (seconds_now() - began > 60)
                fail("program %u: worker %d hangs in phase %d", seed, worker, phase);
            nanosleep(&(struct timespec){0, 50000}, NULL);
        }
    }
}

static void end_one(unsigned int seed, pid_t *worker)
{
    int status;

    kill(*worker, SIGKILL);
    if (waitpid(*worker, &status, 0) != *worker || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail("program %u: a worker ends with %#x before it is killed", seed, (unsigned int)status);
    *worker = 0;
}

/* Worker 0 may have memory that others have opened, so it is not killed. */
static void run_program(unsigned int seed)
{
    pid_t workers[WORKERS_MAX] = {0};
    int count;

    state = seed;
    memset(stage, 0, sizeof(*stage));
    count = 1 + (int)chance(WORKERS_MAX);
    victim = count > 1 && chance(2) ? count - 1 : -1;
    for (self = 0; self < count; self++) {
        workers[self] = fork();
        if (workers[self] == 0)
            work(seed * 4 + (unsigned int)self);
    }
    for (int phase = 1; phase <= PHASES; phase++) {
        if (victim >= 0 && phase == 2) {
            nanosleep(&(struct timespec){0, 1000 * (long)chance(1u << chance(13))}, NULL);
            end_one(seed, &workers[victim]);
        }
        wait_for(seed, workers, phase);
        compare(seed, phase == 1 ? "first pause" : phase == 2 ? "second pause" : "third pause");
        atomic_store(&stage->go, phase);
    }
    for (int worker = 0; worker < WORKERS_MAX; worker++) {
        int status;

        if (workers[worker] && (waitpid(workers[worker], &status, 0) < 0 || status))
            fail("program %u: worker %d ends with %#x", seed, worker, (unsigned int)status);
    }
    compare(seed, "its end");
    for (int ordinal = 0; ordinal < DEVICES; ordinal++)
        if (judge_ask(ordinal).accounted || judge_ask(ordinal).live_slots)
            fail("program %u: its end leaves something accounted", seed);
}

int main(int count, char **arguments)
{
    unsigned int seed, programs;

    if (count != 3)
        fail("usage: random_programs SEED COUNT");
    seed = (unsigned int)strtoul(arguments[1], NULL, 10);
    programs = (unsigned int)strtoul(arguments[2], NULL, 10);
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    judge_start();
    judge_ask(0);
    for (unsigned int program = 0; program < programs; program++)
        run_program(seed + program);
    judge_end();
    printf("%u programs\n", programs);
    return 0;
}
