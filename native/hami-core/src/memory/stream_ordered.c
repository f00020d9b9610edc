/*
 * The hooks of stream-ordered allocations, of their pools, and of the synchronisations at which pools give memory back.
 *
 * The pool is charged for an allocation (pool.h). In a stream that is being captured nothing is allocated; the launch of the graph
 * does that (graph.c). Pools of host memory cost nothing, and an imported pool costs its exporter.
 */
#include <time.h>

#include "account.h"
#include "devices.h"
#include "driver.h"
#include "graph.h"
#include "hooks.h"
#include "pool.h"
#include "substitute.h"

enum { LONGEST_WAIT_MS = 10000 };

/*
 * Return the pool that the device's stream-ordered allocations come from now, and account for it from now on. 0 if it is not a pool
 * of a device.
 */
static uint64_t current_pool(CUdevice ordinal)
{
    CUmemoryPool pool;
    int device = hami_device_of_ordinal(ordinal);

    if (device < 0 || HAMI_INSIDE(hami_real.cuDeviceGetMemPool(&pool, ordinal)) != CUDA_SUCCESS)
        return 0;
    if (hami_pool_device(HAMI_POOL_OF(pool)) < 0)
        hami_pool_know(HAMI_POOL_OF(pool), device);
    return HAMI_POOL_OF(pool);
}

/* Return a pool if it is known or is the default pool of a device, which the driver makes. 0 for other pools. */
static uint64_t known_pool(CUmemoryPool pool)
{
    CUmemoryPool made_by_driver;

    if (hami_pool_device(HAMI_POOL_OF(pool)) >= 0)
        return HAMI_POOL_OF(pool);
    for (CUdevice ordinal = 0; hami_device_of_ordinal(ordinal) >= 0; ordinal++) {
        if (HAMI_INSIDE(hami_real.cuDeviceGetDefaultMemPool(&made_by_driver, ordinal)) != CUDA_SUCCESS || made_by_driver != pool)
            continue;
        hami_pool_know(HAMI_POOL_OF(pool), hami_device_of_ordinal(ordinal));
        return HAMI_POOL_OF(pool);
    }
    return 0;
}

/* Free what a pool could not be charged for, and make the pool release it. */
static CUresult give_back(CUdeviceptr pointer, CUstream stream, uint64_t pool)
{
    HAMI_INSIDE(hami_real.cuMemFreeAsync(pointer, stream));
    hami_pools_trim(hami_pool_device(pool));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult remember(CUdeviceptr pointer, CUstream stream, uint64_t pool)
{
    struct hami_charge charge = {
        .key = pointer, .owner = pool, .device = (int16_t)hami_pool_device(pool), .kind = HAMI_MEMORY_POOLED};

    hami_pool_retain(pool);
    return hami_memory_remember(&hami_pointers, charge) ? CUDA_SUCCESS : give_back(pointer, stream, pool);
}

/* Use managed memory if the device has no room. It belongs to no pool and is charged by itself. */
static CUresult substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, uint64_t pool)
{
    struct hami_charge charge = {.bytes = bytes, .device = (int16_t)hami_pool_device(pool), .kind = HAMI_MEMORY_SUBSTITUTE};
    bool is_substitute = false;

    if (result != CUDA_ERROR_OUT_OF_MEMORY || hami_memory_charge(charge.device, bytes) != CUDA_SUCCESS)
        return result;
    result = hami_memory_substitute(result, pointer, bytes, &is_substitute);
    charge.key = is_substitute ? *pointer : 0;
    charge.owner = (uint64_t)(uintptr_t)hami_current_context();
    if (!is_substitute)
        hami_memory_discharge(&charge);
    else if (!hami_memory_remember(&hami_pointers, charge))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/*
 * An allocation that a program requests: from the pool `from`, or from the stream's current pool. That one is asked for once and
 * then named to the driver, because another thread may set the current pool before the driver is called.
 */
struct request {
    CUdeviceptr *pointer;
    size_t bytes;
    CUmemoryPool from;
    CUstream stream;
    bool is_per_thread;
    __typeof__(&cuMemAllocAsync) allocate;
    __typeof__(&cuMemAllocFromPoolAsync) allocate_from;
};

static CUresult call_driver(const void *arguments)
{
    const struct request *request = arguments;

    if (request->from || !request->allocate)
        return request->allocate_from(request->pointer, request->bytes, request->from, request->stream);
    return request->allocate(request->pointer, request->bytes, request->stream);
}

/* Return the pool to charge; 0 if nothing is charged. */
static uint64_t pool_of(const struct request *request)
{
    uint64_t pool;

    if (hami_inside || !request->pointer || !request->bytes || (!request->allocate && !request->from))
        return 0;
    pool =
        request->from ? known_pool(request->from) : current_pool(hami_ordinal_of_stream(request->stream, request->is_per_thread));
    if (pool && hami_is_capturing(request->stream, request->is_per_thread)) {
        hami_graph_allocates();
        pool = 0;
    }
    return pool;
}

static CUresult allocate_from_pool(const struct request *request, uint64_t pool, bool *is_ended)
{
    enum hami_growth growth;
    CUresult result;

    HAMI_CHANGING(hami_pool_device(pool));
    growth = hami_memory_grow_pool(pool, request->bytes, call_driver, request, &result);
    *is_ended = growth == HAMI_GROWTH_ENDED;
    if (growth == HAMI_GROWTH_REFUSED || growth == HAMI_GROWTH_ENDED)
        return result;
    if (result != CUDA_SUCCESS)
        return substitute(result, request->pointer, request->bytes, pool);
    return growth == HAMI_GROWTH_WITHIN ? remember(*request->pointer, request->stream, pool)
                                        : give_back(*request->pointer, request->stream, pool);
}

/*
 * While another thread destroys the current pool, this waits until the driver has set another one. The driver answers if a program
 * allocates from a pool that it has destroyed.
 */
static CUresult allocate(const struct request *request)
{
    CUresult result = CUDA_SUCCESS;
    bool is_ended = true;

    for (int waited_ms = 0; is_ended && waited_ms < LONGEST_WAIT_MS; waited_ms++) {
        struct request from_pool = *request;
        uint64_t pool = pool_of(request);

        if (!pool)
            break;
        if (HAMI_HAS(request->allocate_from))
            from_pool.from = (CUmemoryPool)(uintptr_t)pool;
        result = allocate_from_pool(&from_pool, pool, &is_ended);
        if (is_ended && request->from)
            break;
        if (is_ended)
            nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return is_ended ? call_driver(request) : result;
}

HAMI_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(&(struct request){.pointer = pointer,
                                      .bytes = bytes,
                                      .stream = stream,
                                      .allocate = HAMI_REAL_CUDA(cuMemAllocAsync),
                                      .allocate_from = HAMI_REAL_CUDA(cuMemAllocFromPoolAsync)});
}

HAMI_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate(&(struct request){.pointer = pointer,
                                      .bytes = bytes,
                                      .stream = stream,
                                      .is_per_thread = true,
                                      .allocate = HAMI_REAL_CUDA(cuMemAllocAsync_ptsz),
                                      .allocate_from = HAMI_REAL_CUDA(cuMemAllocFromPoolAsync_ptsz)});
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool from, CUstream stream)
{
    return allocate(&(struct request){.pointer = pointer,
                                      .bytes = bytes,
                                      .from = from,
                                      .stream = stream,
                                      .allocate_from = HAMI_REAL_CUDA(cuMemAllocFromPoolAsync)});
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool from, CUstream stream)
{
    return allocate(&(struct request){.pointer = pointer,
                                      .bytes = bytes,
                                      .from = from,
                                      .stream = stream,
                                      .is_per_thread = true,
                                      .allocate_from = HAMI_REAL_CUDA(cuMemAllocFromPoolAsync_ptsz)});
}

/* The driver does not free managed memory in stream order: wait for the stream, then free. */
static CUresult free_substitute(CUdeviceptr pointer, CUstream stream, __typeof__(&cuStreamSynchronize) wait)
{
    CUresult result = HAMI_INSIDE(wait(stream));

    return result == CUDA_SUCCESS ? HAMI_INSIDE(hami_real.cuMemFree_v2(pointer)) : result;
}

static CUresult free_async(CUdeviceptr pointer, CUstream stream, __typeof__(&cuMemFreeAsync) real,
                           __typeof__(&cuStreamSynchronize) wait)
{
    struct hami_charge taken = {.kind = HAMI_MEMORY_PLAIN};
    CUresult result;

    if (hami_inside || !pointer)
        return real(pointer, stream);
    result = HAMI_MEMORY_END(&hami_pointers, pointer, &taken,
                             taken.kind == HAMI_MEMORY_SUBSTITUTE ? free_substitute(pointer, stream, wait) : real(pointer, stream));
    hami_pools_refresh();
    return result;
}

HAMI_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    return free_async(pointer, stream, HAMI_REAL_CUDA(cuMemFreeAsync), HAMI_REAL_CUDA(cuStreamSynchronize));
}

HAMI_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return free_async(pointer, stream, HAMI_REAL_CUDA(cuMemFreeAsync_ptsz), HAMI_REAL_CUDA(cuStreamSynchronize_ptsz));
}

/* Pools */

HAMI_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result;
    int device;

    result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemPoolCreate)(pool, properties));
    if (result != CUDA_SUCCESS || hami_inside || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    device = hami_device_of_ordinal(properties->location.id);
    if (device >= 0)
        hami_pool_know(HAMI_POOL_OF(*pool), device);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    __typeof__(&cuMemPoolDestroy) real = HAMI_REAL_CUDA(cuMemPoolDestroy);

    if (!pool || hami_inside)
        return real(pool);
    HAMI_CHANGING(hami_pool_device(HAMI_POOL_OF(pool)));
    return hami_pool_destroy(pool, real);
}

/* Calls after which pools may have less memory */
static CUresult refresh_pools(CUresult result)
{
    hami_pools_refresh();
    return result;
}

HAMI_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    return refresh_pools(HAMI_REAL_CUDA(cuMemPoolTrimTo)(pool, keep_bytes));
}

HAMI_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    return refresh_pools(HAMI_REAL_CUDA(cuDeviceGraphMemTrim)(device));
}

HAMI_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    return refresh_pools(HAMI_REAL_CUDA(cuStreamSynchronize)(stream));
}

HAMI_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    return refresh_pools(HAMI_REAL_CUDA(cuStreamSynchronize_ptsz)(stream));
}

HAMI_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    return refresh_pools(HAMI_REAL_CUDA(cuEventSynchronize)(event));
}

HAMI_EXPORT CUresult cuCtxSynchronize(void)
{
    return refresh_pools(HAMI_REAL_CUDA(cuCtxSynchronize)());
}

HAMI_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    return refresh_pools(HAMI_REAL_CUDA(cuCtxSynchronize_v2)(context));
}
