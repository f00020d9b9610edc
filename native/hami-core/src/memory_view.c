/*
 * What a program is told of its device: the container's limit for the card's size, the container's use for the card's.
 *
 * The driver is asked first and its errors stand. `free` is never more than the driver has left, and totals never more than the card.
 */
#include <stdatomic.h>
#include <stdint.h>

#include "hooks.h"
#include "process.h"
#include "region.h"

static uint64_t smaller(uint64_t first, uint64_t second)
{
    return first < second ? first : second;
}

static uint64_t limit_of(int device)
{
    return device < 0 ? 0 : atomic_load_explicit(&hami_region()->limit[device], memory_order_relaxed);
}

HAMI_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    __typeof__(&cuDeviceTotalMem_v2) real = HAMI_REAL_CUDA(cuDeviceTotalMem_v2);
    uint64_t limit;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(bytes, device);
    if (result == CUDA_SUCCESS && (limit = limit_of(hami_process_device(device))))
        *bytes = smaller(*bytes, limit);
    return result;
}

HAMI_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    __typeof__(&cuDeviceTotalMem) real = HAMI_REAL_CUDA(cuDeviceTotalMem);
    uint64_t limit;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(bytes, device);
    if (result == CUDA_SUCCESS && (limit = limit_of(hami_process_device(device))))
        *bytes = (unsigned int)smaller(*bytes, limit);
    return result;
}

static void limit_view(uint64_t *available, uint64_t *total)
{
    int device = hami_process_current_device();
    uint64_t limit = limit_of(device);
    uint64_t used;

    if (!limit)
        return;
    hami_region_sweep_if_stale();
    used = hami_region_used(device);
    *total = smaller(*total, limit);
    *available = smaller(*available, *total > used ? *total - used : 0);
}

HAMI_EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    __typeof__(&cuMemGetInfo_v2) real = HAMI_REAL_CUDA(cuMemGetInfo_v2);
    uint64_t seen_available, seen_total;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(available, total);
    if (result != CUDA_SUCCESS || !available || !total)
        return result;
    seen_available = *available;
    seen_total = *total;
    limit_view(&seen_available, &seen_total);
    *available = seen_available;
    *total = seen_total;
    return result;
}

HAMI_EXPORT CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    __typeof__(&cuMemGetInfo) real = HAMI_REAL_CUDA(cuMemGetInfo);
    uint64_t seen_available, seen_total;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(available, total);
    if (result != CUDA_SUCCESS || !available || !total)
        return result;
    seen_available = *available;
    seen_total = *total;
    limit_view(&seen_available, &seen_total);
    *available = (unsigned int)seen_available;
    *total = (unsigned int)seen_total;
    return result;
}
