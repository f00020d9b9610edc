/*
 * Stream-ordered allocations, the pools they come from, and the synchronisations at which pools give memory back.
 *
 * What an allocation costs is its pool's matter (memory_pool.h). In a stream that is being captured nothing is allocated: the graph's
 * launch does that (memory_graph.c). Pools of host memory cost no device anything, and an imported pool costs its exporter.
 */
#include "hooks.h"
#include "memory.h"
#include "memory_graph.h"
#include "memory_pool.h"
#include "process.h"

static bool is_capturing(CUstream stream, bool is_per_thread)
{
    __typeof__(&cuStreamIsCapturing) ask =
        is_per_thread && hami_real.cuStreamIsCapturing_ptsz ? hami_real.cuStreamIsCapturing_ptsz : hami_real.cuStreamIsCapturing;
    CUstreamCaptureStatus status;

    return ask && HAMI_INSIDE(ask(stream, &status)) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The pool a device's stream-ordered allocations come from now, known afterwards; 0 when it is none of a device. */
static uint64_t current_pool(CUdevice ordinal)
{
    CUmemoryPool pool;
    int device = hami_process_device(ordinal);

    if (device < 0 || !hami_real.cuDeviceGetMemPool ||
        HAMI_INSIDE(hami_real.cuDeviceGetMemPool(&pool, ordinal)) != CUDA_SUCCESS)
        return 0;
    if (hami_pool_device(HAMI_POOL_OF(pool)) < 0)
        hami_pool_know(HAMI_POOL_OF(pool), device);
    return HAMI_POOL_OF(pool);
}

/* The pools the driver itself makes are met here first: one a device. */
static uint64_t known_pool(CUmemoryPool pool)
{
    CUmemoryPool made_by_driver;

    if (hami_pool_device(HAMI_POOL_OF(pool)) >= 0)
        return HAMI_POOL_OF(pool);
    for (CUdevice ordinal = 0; hami_process_device(ordinal) >= 0; ordinal++) {
        if (!hami_real.cuDeviceGetDefaultMemPool ||
            HAMI_INSIDE(hami_real.cuDeviceGetDefaultMemPool(&made_by_driver, ordinal)) != CUDA_SUCCESS || made_by_driver != pool)
            continue;
        hami_pool_know(HAMI_POOL_OF(pool), hami_process_device(ordinal));
        return HAMI_POOL_OF(pool);
    }
    return 0;
}

/* Give back what a pool could not be charged for. The memory is the pool's again, so make it let go of it. */
static CUresult give_back(CUdeviceptr pointer, CUstream stream, uint64_t pool)
{
    if (hami_real.cuMemFreeAsync)
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

/* Managed memory in the place of what the card has no room for; it belongs to no pool and is charged by itself. */
static CUresult substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, uint64_t pool)
{
    struct hami_charge charge = {.bytes = bytes, .device = (int16_t)hami_pool_device(pool), .kind = HAMI_MEMORY_SUBSTITUTE};
    bool is_substitute = false;

    if (result != CUDA_ERROR_OUT_OF_MEMORY || hami_memory_charge(charge.device, bytes) != CUDA_SUCCESS)
        return result;
    result = hami_memory_substitute(result, pointer, bytes, &is_substitute);
    charge.key = is_substitute ? *pointer : 0;
    charge.owner = hami_memory_owner();
    if (!is_substitute)
        hami_memory_discharge(&charge);
    else if (!hami_memory_remember(&hami_pointers, charge))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    return result;
}

/* `pool` is 0 where nothing is to be charged. */
#define ALLOCATE(symbol, is_possible, is_per_thread, find_pool, call)                            \
    do {                                                                                         \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                       \
        uint64_t pool, growth;                                                                   \
        CUresult result;                                                                         \
        bool is_within;                                                                          \
                                                                                                 \
        if (!real)                                                                               \
            return CUDA_ERROR_NOT_FOUND;                                                         \
        pool = !hami_inside && (is_possible) ? (find_pool) : 0;                                  \
        if (pool && is_capturing(stream, is_per_thread)) {                                       \
            hami_graph_allocates();                                                              \
            pool = 0;                                                                            \
        }                                                                                        \
        if (!pool)                                                                               \
            return call;                                                                         \
        HAMI_CHANGING(hami_pool_device(pool));                                                   \
        result = hami_pool_begin(pool, bytes, &growth);                                          \
        if (result != CUDA_SUCCESS)                                                              \
            return result;                                                                       \
        result = HAMI_INSIDE(call);                                                              \
        is_within = hami_pool_end(pool, growth);                                                 \
        if (result != CUDA_SUCCESS)                                                              \
            return substitute(result, pointer, bytes, pool);                                     \
        return is_within ? remember(*pointer, stream, pool) : give_back(*pointer, stream, pool); \
    } while (0)

HAMI_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync, pointer && bytes, false, current_pool(hami_process_stream_ordinal(stream, false)),
             real(pointer, bytes, stream));
}

HAMI_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync_ptsz, pointer && bytes, true, current_pool(hami_process_stream_ordinal(stream, true)),
             real(pointer, bytes, stream));
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool from, CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync, pointer && bytes && from, false, known_pool(from), real(pointer, bytes, from, stream));
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool from, CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pointer && bytes && from, true, known_pool(from), real(pointer, bytes, from, stream));
}

/* The driver frees no managed memory in stream order: wait for the stream, then free. */
static CUresult free_substitute(CUdeviceptr pointer, CUstream stream, __typeof__(&cuStreamSynchronize) wait)
{
    CUresult result = wait ? HAMI_INSIDE(wait(stream)) : CUDA_SUCCESS;

    if (result != CUDA_SUCCESS || !hami_real.cuMemFree_v2)
        return result;
    return HAMI_INSIDE(hami_real.cuMemFree_v2(pointer));
}

#define FREE(symbol, wait)                                                                                     \
    do {                                                                                                       \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                                     \
        struct hami_charge taken = {.kind = HAMI_MEMORY_PLAIN};                                                \
        CUresult result;                                                                                       \
                                                                                                               \
        if (!real)                                                                                             \
            return CUDA_ERROR_NOT_FOUND;                                                                       \
        if (hami_inside || !pointer)                                                                           \
            return real(pointer, stream);                                                                      \
        result = HAMI_MEMORY_END(&hami_pointers, pointer, &taken,                                              \
                                 taken.kind == HAMI_MEMORY_SUBSTITUTE ? free_substitute(pointer, stream, wait) \
                                                                      : real(pointer, stream));                \
        hami_pools_refresh();                                                                                  \
        return result;                                                                                         \
    } while (0)

HAMI_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    FREE(cuMemFreeAsync, hami_real.cuStreamSynchronize);
}

HAMI_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    FREE(cuMemFreeAsync_ptsz, hami_real.cuStreamSynchronize_ptsz);
}

/* Pools */

HAMI_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    __typeof__(&cuMemPoolCreate) real = HAMI_REAL_CUDA(cuMemPoolCreate);
    CUresult result;
    int device;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(pool, properties));
    if (result != CUDA_SUCCESS || hami_inside || properties->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return result;
    device = hami_process_device(properties->location.id);
    if (device >= 0)
        hami_pool_know(HAMI_POOL_OF(*pool), device);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    __typeof__(&cuMemPoolDestroy) real = HAMI_REAL_CUDA(cuMemPoolDestroy);

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (!pool || hami_inside)
        return real(pool);
    HAMI_CHANGING(hami_pool_device(HAMI_POOL_OF(pool)));
    return hami_pool_destroy(pool, real);
}

/* Calls after which pools may have less */
static CUresult refresh_pools(CUresult result)
{
    hami_pools_refresh();
    return result;
}

HAMI_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    HAMI_SETTLE(cuMemPoolTrimTo, refresh_pools, pool, keep_bytes);
}

HAMI_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    HAMI_SETTLE(cuDeviceGraphMemTrim, refresh_pools, device);
}

HAMI_EXPORT CUresult cuStreamSynchronize(CUstream stream)
{
    HAMI_SETTLE(cuStreamSynchronize, refresh_pools, stream);
}

HAMI_EXPORT CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
    HAMI_SETTLE(cuStreamSynchronize_ptsz, refresh_pools, stream);
}

HAMI_EXPORT CUresult cuEventSynchronize(CUevent event)
{
    HAMI_SETTLE(cuEventSynchronize, refresh_pools, event);
}

HAMI_EXPORT CUresult cuCtxSynchronize(void)
{
    HAMI_SETTLE(cuCtxSynchronize, refresh_pools);
}

HAMI_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context)
{
    HAMI_SETTLE(cuCtxSynchronize_v2, refresh_pools, context);
}
