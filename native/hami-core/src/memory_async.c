/*
 * Stream-ordered allocations and the pools they come from.
 *
 * An allocation is charged when it is queued and discharged when its free is queued; what a pool keeps beyond that is the driver's.
 * A pool's device is known when it was made here; the pools the driver itself makes are those of the stream's device.
 */
#include "hooks.h"
#include "memory.h"
#include "process.h"

static CUresult settle(CUresult result, const CUdeviceptr *pointer, int device, uint64_t charged, CUstream stream)
{
    struct hami_charge charge = {.bytes = charged, .device = device};

    if (result != CUDA_SUCCESS) {
        hami_memory_discharge(&charge);
        return result;
    }
    charge.key = *pointer;
    if (hami_memory_remember(&hami_pointers, charge))
        return CUDA_SUCCESS;
    if (hami_real.cuMemFreeAsync)
        HAMI_INSIDE(hami_real.cuMemFreeAsync(charge.key, stream));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static int pool_device(CUmemoryPool pool, CUstream stream, bool is_per_thread)
{
    struct hami_charge made_here;

    if (pool && hami_charges_find(&hami_pools, (uint64_t)(uintptr_t)pool, &made_here))
        return made_here.device;
    return hami_process_stream_device(stream, is_per_thread);
}

#define ALLOCATE(symbol, is_possible, find_device, call)                    \
    do {                                                                    \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                  \
        int device = real && !hami_inside && (is_possible) ? (find_device) : -1; \
        uint64_t charged;                                                   \
        CUresult result;                                                    \
                                                                            \
        if (!real)                                                          \
            return CUDA_ERROR_NOT_FOUND;                                    \
        if (device < 0)                                                     \
            return call;                                                    \
        result = hami_memory_charge(device, bytes, &charged);               \
        if (result != CUDA_SUCCESS)                                         \
            return result;                                                  \
        return settle(HAMI_INSIDE(call), pointer, device, charged, stream); \
    } while (0)

HAMI_EXPORT CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync, pointer && bytes, hami_process_stream_device(stream, false), real(pointer, bytes, stream));
}

HAMI_EXPORT CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    ALLOCATE(cuMemAllocAsync_ptsz, pointer && bytes, hami_process_stream_device(stream, true), real(pointer, bytes, stream));
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync, pointer && bytes && pool, pool_device(pool, stream, false),
             real(pointer, bytes, pool, stream));
}

HAMI_EXPORT CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    ALLOCATE(cuMemAllocFromPoolAsync_ptsz, pointer && bytes && pool, pool_device(pool, stream, true),
             real(pointer, bytes, pool, stream));
}

#define FREE(symbol)                                                                      \
    do {                                                                                  \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                \
        struct hami_charge taken;                                                         \
        bool is_known;                                                                    \
        CUresult result;                                                                  \
                                                                                          \
        if (!real)                                                                        \
            return CUDA_ERROR_NOT_FOUND;                                                  \
        if (hami_inside || !pointer)                                                      \
            return real(pointer, stream);                                                 \
        is_known = hami_charges_take(&hami_pointers, pointer, &taken);                    \
        result = HAMI_INSIDE(real(pointer, stream));                                      \
        if (is_known && result == CUDA_SUCCESS)                                           \
            hami_memory_discharge(&taken);                                                \
        else if (is_known)                                                                \
            hami_memory_remember(&hami_pointers, taken);                                  \
        return result;                                                                    \
    } while (0)

HAMI_EXPORT CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    FREE(cuMemFreeAsync);
}

HAMI_EXPORT CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    FREE(cuMemFreeAsync_ptsz);
}

HAMI_EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    __typeof__(&cuMemPoolCreate) real = HAMI_REAL_CUDA(cuMemPoolCreate);
    struct hami_charge made_here = {.bytes = 0};
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(pool, properties));
    if (result != CUDA_SUCCESS || hami_inside)
        return result;
    /* Memory of the host's side costs no device anything. */
    made_here.device =
        properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? hami_process_device(properties->location.id) : -1;
    made_here.key = (uint64_t)(uintptr_t)*pool;
    hami_memory_remember(&hami_pools, made_here);
    return result;
}

HAMI_EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    __typeof__(&cuMemPoolDestroy) real = HAMI_REAL_CUDA(cuMemPoolDestroy);
    struct hami_charge taken;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(pool));
    if (result == CUDA_SUCCESS && !hami_inside && pool)
        hami_charges_take(&hami_pools, (uint64_t)(uintptr_t)pool, &taken);
    return result;
}
