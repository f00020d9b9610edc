/*
 * What a program is told of its device: the container's limit for the card's size, the container's use for the card's.
 *
 * The driver is asked first and its errors stand. `free` is never more than the driver has left, and totals never more than the card,
 * unless CUDA_OVERSUBSCRIBE grants more than the card has: then the grant is all that counts.
 */
#include <stdint.h>

#include "hooks.h"
#include "memory_overhead.h"
#include "memory_pool.h"
#include "memory_view.h"
#include "options.h"
#include "process.h"
#include "region.h"

static uint64_t smaller(uint64_t first, uint64_t second)
{
    return first < second ? first : second;
}

uint64_t hami_view_total(int device, uint64_t card_total)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit)
        return card_total;
    return hami_options()->is_oversubscribed ? limit : smaller(limit, card_total);
}

bool hami_view_memory(int device, struct hami_memory_view *view)
{
    uint64_t left;

    if (!hami_region_limit(device))
        return false;
    hami_region_sweep_if_stale();
    hami_pools_refresh();
    hami_overhead_refresh(device);
    hami_overhead_refresh_if_stale(device);
    view->total = hami_view_total(device, view->total);
    view->used = smaller(hami_region_used(device), view->total);
    left = view->total - view->used;
    view->available = hami_options()->is_oversubscribed ? left : smaller(view->available, left);
    return true;
}

HAMI_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    __typeof__(&cuDeviceTotalMem_v2) real = HAMI_REAL_CUDA(cuDeviceTotalMem_v2);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = hami_view_total(hami_process_device(device), *bytes);
    return result;
}

HAMI_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    __typeof__(&cuDeviceTotalMem) real = HAMI_REAL_CUDA(cuDeviceTotalMem);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = real(bytes, device);
    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned int)smaller(hami_view_total(hami_process_device(device), *bytes), UINT32_MAX);
    return result;
}

/* Either answer may be unwanted; a driver that insists on both says so. */
#define GET_INFO(symbol, most)                                                                                            \
    do {                                                                                                                  \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                                                \
        struct hami_memory_view view;                                                                                     \
        CUresult result;                                                                                                  \
                                                                                                                          \
        if (!real)                                                                                                        \
            return CUDA_ERROR_NOT_FOUND;                                                                                  \
        result = real(available, total);                                                                                  \
        if (result != CUDA_SUCCESS)                                                                                       \
            return result;                                                                                                \
        view = (struct hami_memory_view){.available = available ? *available : (most), .total = total ? *total : (most)}; \
        if (!hami_view_memory(hami_process_current_device(), &view))                                                      \
            return result;                                                                                                \
        if (available)                                                                                                    \
            *available = (__typeof__(*available))smaller(view.available, (most));                                         \
        if (total)                                                                                                        \
            *total = (__typeof__(*total))smaller(view.total, (most));                                                     \
        return result;                                                                                                    \
    } while (0)

HAMI_EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    GET_INFO(cuMemGetInfo_v2, SIZE_MAX);
}

HAMI_EXPORT CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    GET_INFO(cuMemGetInfo, UINT32_MAX);
}
