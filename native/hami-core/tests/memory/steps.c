#include "steps.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "requests.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GRANULE (2 * MIB)
#define POOL_STEP (32 * MIB)

/* What the account may say more than the driver, for each process: one block for pieces and one for code. */
#define APART (2 * GRANULE)

static _Thread_local struct actor *me;

/* An exported file keeps the memory. So a child must not inherit it. */
static pthread_mutex_t exports = PTHREAD_MUTEX_INITIALIZER;

unsigned int chance(struct actor *actor, unsigned int below)
{
    actor->state = actor->state * 1664525u + 1013904223u;
    return (actor->state >> 8) % below;
}

static size_t some_bytes(void)
{
    switch (chance(me, 4)) {
    case 0:
        return 1 + chance(me, 4 * KIB);
    case 1:
        return 1 + chance(me, MIB);
    case 2:
        return MIB + chance(me, 3 * MIB);
    default:
        return (1 + chance(me, 32)) * MIB;
    }
}

/* Only requests for memory may be refused. */
static bool succeeds(CUresult result, const char *what)
{
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        fail("%s answers %d", what, (int)result);
    return result == CUDA_SUCCESS;
}

#define CHECKED(call) succeeds((call), #call)

/* Judge a request for memory. A refusal is wrong if all that was needed at every moment of it fits into the limit. */
static bool is_given(CUresult result, int device, const char *what)
{
    uint64_t needed = request_end(me->number), limit = me->worker->stage->limit;

    if (result == CUDA_ERROR_OUT_OF_MEMORY && needed < limit && needed + APART * (unsigned int)me->worker->count <= limit)
        fail("program %u: %s is refused on device %d, although no more than %.1f of %.1f MiB were needed", me->worker->seed, what,
             device, (double)needed / MIB, (double)limit / MIB);
    return succeeds(result, what);
}

/* A call that takes at most so many bytes of a device, or of the current device. */
#define TAKEN_OF(device, most_bytes, call) (request_begin(me->number, (device), (most_bytes)), is_given((call), (device), #call))
#define TAKEN(most_bytes, call) TAKEN_OF(me->device, most_bytes, call)

/* A call that gives back at most so many bytes of a device; if there are pools, they may give back any of theirs too. */
#define GIVEN(device, most_bytes, call)                                                         \
    do {                                                                                        \
        release_begin(me->number, (device), me->worker->has_pools ? UINT64_MAX : (most_bytes)); \
        CHECKED(call);                                                                          \
        release_end(me->number);                                                                \
    } while (0)

/* What an allocation of so many bytes takes at most: by itself, and from a pool. */
static uint64_t as_blocks(uint64_t bytes)
{
    return (bytes + GRANULE - 1) / GRANULE * GRANULE;
}

static uint64_t as_growth(uint64_t bytes)
{
    return (bytes + POOL_STEP - 1) / POOL_STEP * POOL_STEP + POOL_STEP;
}

static uint64_t setting(const char *name)
{
    return strtoull(getenv(name), NULL, 10);
}

static uint64_t context_bytes(void)
{
    return setting("FAKE_DRIVER_CONTEXT_MIB") * MIB;
}

static uint64_t module_bytes(void)
{
    return as_blocks(setting("FAKE_DRIVER_MODULE_KIB") * KIB) + GRANULE;
}

static struct held *room(enum kind kind)
{
    if (me->held_count == HELD_MAX)
        return NULL;
    me->held[me->held_count] = (struct held){.kind = kind, .device = me->device};
    return &me->held[me->held_count];
}

/* Hold what was taken. It gives back at most what its requests have announced. */
static void keep(struct held *fresh, uint64_t most_bytes)
{
    fresh->most_bytes = most_bytes;
    me->held_count++;
}

static void remove_at(int index)
{
    me->held[index] = me->held[--me->held_count];
}

static int find(enum kind kind)
{
    int start = me->held_count ? (int)chance(me, (unsigned int)me->held_count) : 0;

    for (int offset = 0; offset < me->held_count; offset++)
        if (me->held[(start + offset) % me->held_count].kind == kind)
            return (start + offset) % me->held_count;
    return -1;
}

/* Steps that allocate */

static void take_plain(void)
{
    struct held *fresh = room(PLAIN);
    size_t bytes = some_bytes(), width = 1 + chance(me, 3000), height = 1 + chance(me, 2000), pitch;
    uint64_t most = as_blocks(bytes);
    bool is_taken;

    if (!fresh)
        return;
    switch (chance(me, 4)) {
    case 0:
        most = as_blocks((width + 511) / 512 * 512 * height);
        is_taken = TAKEN(most, cuMemAllocPitch_v2(&fresh->pointer, &pitch, width, height, 4));
        break;
    case 1:
        is_taken = TAKEN(most, cuMemAllocManaged(&fresh->pointer, bytes, 1));
        break;
    default:
        is_taken = TAKEN(most, cuMemAlloc_v2(&fresh->pointer, bytes));
    }
    if (is_taken)
        keep(fresh, most);
}

/* The default stream, or one of this thread's on the current device. */
static CUstream some_stream(void)
{
    CUstream *stream = &me->streams[me->device];

    if (!*stream)
        CHECKED(cuStreamCreate(stream, 1));
    return chance(me, 2) ? *stream : NULL;
}

static void take_pooled(void)
{
    struct held *fresh = room(POOLED);
    size_t bytes = some_bytes();
    int pool = find(POOL);

    if (!fresh)
        return;
    if (pool >= 0 && chance(me, 2)) {
        fresh->from = me->held[pool].pool;
        fresh->device = me->held[pool].device;
    }
    if (fresh->from)
        me->held_count +=
            TAKEN_OF(fresh->device, as_growth(bytes), cuMemAllocFromPoolAsync(&fresh->pointer, bytes, fresh->from, some_stream()));
    else
        me->held_count += TAKEN(as_growth(bytes), cuMemAllocAsync(&fresh->pointer, bytes, some_stream()));
}

static void take_pool(void)
{
    CUmemPoolProps properties = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, me->device}};
    cuuint64_t keep = UINT64_MAX;
    struct held *fresh = room(POOL);

    if (!fresh || !CHECKED(cuMemPoolCreate(&fresh->pool, &properties)))
        return;
    if (chance(me, 2))
        CHECKED(cuMemPoolSetAttribute(fresh->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    me->held_count++;
}

static void take_array(void)
{
    CUDA_ARRAY3D_DESCRIPTOR descriptor = {
        .Width = 1 + chance(me, 2000), .Height = chance(me, 1000), .Format = 0x20, .NumChannels = 1u << chance(me, 3)};
    struct held *fresh = room(chance(me, 2) ? ARRAY : MIPMAP);
    uint64_t most;

    if (!fresh)
        return;
    descriptor.Depth = descriptor.Height ? chance(me, 4) : 0;
    most = as_blocks(3 * 4 * descriptor.NumChannels * (descriptor.Width + 64) * (descriptor.Height + 8) *
                     (descriptor.Depth ? descriptor.Depth : 1));
    if (fresh->kind == ARRAY ? TAKEN(most, cuArray3DCreate_v2(&fresh->array, &descriptor))
                             : TAKEN(most, cuMipmappedArrayCreate(&fresh->mipmap, &descriptor, 1 + chance(me, 6))))
        keep(fresh, most);
}

static void take_mapped(void)
{
    CUmemAllocationProp properties = {.type = 1, .requestedHandleTypes = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, me->device}};
    CUmemGenericAllocationHandle handle, again;
    struct held *fresh = room(MAPPED);

    if (!fresh)
        return;
    fresh->bytes = (1 + chance(me, 8)) * GRANULE;
    if (!TAKEN(fresh->bytes, cuMemCreate(&handle, fresh->bytes, &properties, 0)))
        return;
    if (!CHECKED(cuMemAddressReserve(&fresh->pointer, fresh->bytes, 0, 0, 0)) ||
        !CHECKED(cuMemMap(fresh->pointer, fresh->bytes, 0, handle, 0)))
        fail("no address for %zu bytes", fresh->bytes);
    keep(fresh, fresh->bytes);
    if (chance(me, 2) && (fresh = room(HANDLE)) &&
        CHECKED(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)me->held[me->held_count - 1].pointer))) {
        fresh->handle = again;
        keep(fresh, me->held[me->held_count - 1].most_bytes);
    }
    if (chance(me, 3) == 0) {
        int file;

        pthread_mutex_lock(&exports);
        if (CHECKED(cuMemExportToShareableHandle(&file, handle, 1, 0))) {
            if (CHECKED(cuMemImportFromShareableHandle(&again, (void *)(intptr_t)file, 1)))
                CHECKED(cuMemRelease(again));
            close(file);
        }
        pthread_mutex_unlock(&exports);
    }
    CHECKED(cuMemRelease(handle));
}

static void take_graph(void)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, me->device}},
                                         .bytesize = some_bytes()};
    struct held *fresh = room(EXECUTABLE);
    CUgraphNode node, last;

    if (!fresh || !CHECKED(cuGraphCreate(&fresh->graph, 0)))
        return;
    if (!CHECKED(cuGraphAddMemAllocNode(&node, fresh->graph, NULL, 0, &params)))
        return;
    if (chance(me, 2)) {
        CHECKED(cuGraphAddMemFreeNode(&last, fresh->graph, &node, 1, params.dptr));
        params.dptr = 0;
    }
    if (!CHECKED(cuGraphInstantiateWithFlags(&fresh->executable, fresh->graph, 0)))
        return;
    fresh->in_graph = params.dptr;
    if (TAKEN(as_growth(params.bytesize), cuGraphLaunch(fresh->executable, some_stream()))) {
        me->held_count++;
        return;
    }
    CHECKED(cuGraphExecDestroy(fresh->executable));
    CHECKED(cuGraphDestroy(fresh->graph));
}

static void take_offer(void)
{
    struct held *fresh = room(OPENED);

    if (me->worker->number == 0 || !fresh || !atomic_load(&me->worker->stage->has_offer) || find(OPENED) >= 0)
        return;
    me->held_count += CHECKED(cuIpcOpenMemHandle_v2(&fresh->pointer, me->worker->stage->offer, 1));
}

static void take_context(void)
{
    struct held *fresh = room(CONTEXT);

    if (!fresh || find(CONTEXT) >= 0 || !TAKEN(context_bytes(), cuCtxCreate_v2(&fresh->context, 0, me->device)))
        return;
    keep(fresh, context_bytes());
    for (unsigned int count = chance(me, 4); count; count--) {
        CUdeviceptr pointer; /* ends with its context */
        size_t bytes = some_bytes();

        if (TAKEN(as_blocks(bytes), cuMemAlloc_v2(&pointer, bytes)))
            fresh->most_bytes += as_blocks(bytes);
    }
    CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
}

/* Steps that free */

static void give(int index);

/* The driver does not say how long a destroyed pool keeps unused memory, so what came from it is freed with it. */
static void give_pooled(CUmemoryPool from)
{
    for (int index = me->held_count - 1; index >= 0; index--)
        if (me->held[index].kind == POOLED && me->held[index].from == from)
            give(index);
}

static void give(int index)
{
    struct held one = me->held[index];

    remove_at(index);
    switch (one.kind) {
    case PLAIN:
        GIVEN(one.device, one.most_bytes, cuMemFree_v2(one.pointer));
        break;
    case POOLED:
        GIVEN(one.device, one.most_bytes, chance(me, 3) ? cuMemFreeAsync(one.pointer, some_stream()) : cuMemFree_v2(one.pointer));
        break;
    case ARRAY:
        GIVEN(one.device, one.most_bytes, cuArrayDestroy(one.array));
        break;
    case MIPMAP:
        GIVEN(one.device, one.most_bytes, cuMipmappedArrayDestroy(one.mipmap));
        break;
    case POOL:
        if (chance(me, 2))
            give_pooled(one.pool);
        GIVEN(one.device, one.most_bytes, cuMemPoolDestroy(one.pool));
        give_pooled(one.pool);
        break;
    case MAPPED:
        GIVEN(one.device, one.most_bytes, cuMemUnmap(one.pointer, one.bytes));
        CHECKED(cuMemAddressFree(one.pointer, one.bytes));
        break;
    case HANDLE:
        GIVEN(one.device, one.most_bytes, cuMemRelease(one.handle));
        break;
    case EXECUTABLE:
        if (one.in_graph)
            GIVEN(one.device, one.most_bytes, chance(me, 2) ? cuMemFreeAsync(one.in_graph, NULL) : cuMemFree_v2(one.in_graph));
        CHECKED(cuGraphExecDestroy(one.executable));
        CHECKED(cuGraphDestroy(one.graph));
        break;
    case OPENED:
        CHECKED(cuIpcCloseMemHandle(one.pointer));
        break;
    case CONTEXT:
        GIVEN(one.device, one.most_bytes, cuCtxDestroy_v2(one.context));
        CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
        break;
    default:
        break;
    }
}

static void give_any(void)
{
    if (me->held_count)
        give((int)chance(me, (unsigned int)me->held_count));
}

/* Other steps */

static void trim(void)
{
    int pool = find(POOL);

    if (pool >= 0)
        GIVEN(me->device, 0, cuMemPoolTrimTo(me->held[pool].pool, chance(me, 2) * 32 * MIB));
    GIVEN(me->device, 0, cuDeviceGraphMemTrim(me->device));
}

static void change_device(void)
{
    me->device = (int)chance(me, DEVICES);
    CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
}

static void load(void)
{
    if (me->module)
        GIVEN(me->module_device, module_bytes(), cuModuleUnload(me->module));
    me->module_device = me->device;
    me->module = NULL;
    if (chance(me, 2))
        TAKEN(module_bytes(), cuModuleLoadData(&me->module, "image"));
}

static void launch(void)
{
    CUfunction function;

    if (me->module && CHECKED(cuModuleGetFunction(&function, me->module, "busy_20")))
        CHECKED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, some_stream(), NULL, NULL));
}

/* Other threads allocate from the current pool meanwhile. */
static void change_pool(void)
{
    CUmemoryPool pool = me->worker->spare[me->device];

    if (chance(me, 2))
        CHECKED(cuDeviceGetDefaultMemPool(&pool, me->device));
    CHECKED(cuDeviceSetMemPool(me->device, pool));
}

static void retain_and_release(void)
{
    CUcontext primary;

    CHECKED(cuDevicePrimaryCtxRetain(&primary, me->device));
    CHECKED(cuDevicePrimaryCtxRelease_v2(me->device));
}

static void synchronise(void)
{
    GIVEN(me->device, 0, chance(me, 2) ? cuCtxSynchronize() : cuStreamSynchronize(some_stream()));
}

/*
 * A child of a process that uses CUDA has none of its memory, and its end changes nothing. A process that will be killed has no
 * child, because the driver takes the parent for alive while a child keeps its files.
 */
static void beget(void)
{
    pid_t child;
    int status;

    pthread_mutex_lock(&exports);
    child = fork();
    if (child != 0)
        pthread_mutex_unlock(&exports);
    if (child == 0) {
        CUdeviceptr pointer;

        if (cuMemAlloc_v2(&pointer, MIB) == CUDA_SUCCESS)
            fail("a forked child allocates");
        for (int index = 0; index < me->held_count; index++)
            if (me->held[index].kind == PLAIN)
                cuMemFree_v2(me->held[index].pointer);
        _exit(0);
    }
    if (waitpid(child, &status, 0) != child || status)
        fail("a forked child ends with %d", status);
}

/* ThreadSanitizer takes what a child resets for a race with its parent's threads, which it does not have. */
static bool may_fork(void)
{
#ifdef __SANITIZE_THREAD__
    if (me->worker->threads > 1)
        return false;
#endif
    return !me->worker->is_victim;
}

static void step(void)
{
    static void (*const steps[])(void) = {take_plain,        take_plain, take_plain, take_array, take_mapped, take_offer,
                                          take_context,      give_any,   give_any,   give_any,   give_any,    give_any,
                                          give_any,          load,       load,       launch,     synchronise, change_device,
                                          retain_and_release};
    static void (*const with_pools[])(void) = {take_pooled, take_pooled, take_pool, take_graph, trim, change_pool};
    enum { PLAIN_STEPS = sizeof(steps) / sizeof(steps[0]), POOL_STEPS = sizeof(with_pools) / sizeof(with_pools[0]) };
    unsigned int drawn = chance(me, PLAIN_STEPS + (me->worker->has_pools ? POOL_STEPS : 0));

    if (chance(me, 200) == 0 && may_fork())
        beget();
    else if (drawn < PLAIN_STEPS)
        steps[drawn]();
    else
        with_pools[drawn - PLAIN_STEPS]();
}

bool steps_open(struct actor *actor)
{
    struct worker *worker = actor->worker;

    me = actor;
    for (me->device = DEVICES - 1; me->device >= 0; me->device--) {
        CUmemPoolProps properties = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, me->device}};

        if (!TAKEN(context_bytes(), cuDevicePrimaryCtxRetain(&worker->primary[me->device], me->device)))
            break;
        CHECKED(cuMemPoolCreate(&worker->spare[me->device], &properties));
        CHECKED(cuCtxSetCurrent(worker->primary[me->device]));
    }
    if (me->device >= 0)
        return false;
    me->device = 0;
    if (worker->number == 0 && chance(me, 2)) {
        size_t bytes = some_bytes();
        CUdeviceptr pointer;

        if (TAKEN(as_blocks(bytes), cuMemAlloc_v2(&pointer, bytes)) && CHECKED(cuIpcGetMemHandle(&worker->stage->offer, pointer)))
            atomic_store(&worker->stage->has_offer, true);
    }
    return true;
}

void steps_do(struct actor *actor)
{
    me = actor;
    CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
    for (int count = 0; count < STEPS; count++)
        step();
}

void steps_settle(struct actor *actor)
{
    int before = actor->device;
    size_t available, total;
    CUmodule passing;

    me = actor;
    for (me->device = 0; me->device < DEVICES; me->device++) {
        CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
        GIVEN(me->device, 0, cuCtxSynchronize());
        if (TAKEN(module_bytes(), cuModuleLoadData(&passing, "image")))
            GIVEN(me->device, module_bytes(), cuModuleUnload(passing));
        if (!CHECKED(cuMemGetInfo_v2(&available, &total)) || available > total)
            fail("%zu of %zu bytes are free", available, total);
    }
    me->device = before;
}

void steps_close(struct actor *actor)
{
    me = actor;
    CHECKED(cuCtxSetCurrent(me->worker->primary[me->device]));
    while (me->held_count && chance(me, 4))
        give(me->held_count - 1);
}
