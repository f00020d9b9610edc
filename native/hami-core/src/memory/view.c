/*
 * What a program is told about the memory of its devices: the container's limit as the size, and the container's use as the use.
 *
 * The driver is asked first, and its errors are returned. Free memory is never more than the driver has, and totals are never more
 * than the device has. With CUDA_OVERSUBSCRIBE the limit may be more than the device has; then only the limit counts.
 */
#include <stdint.h>

#include "devices.h"
#include "hooks.h"
#include "options.h"
#include "overhead.h"
#include "pool.h"
#include "region.h"
#include "region_limits.h"

static uint64_t smaller(uint64_t first, uint64_t second)
{
    return first < second ? first : second;
}

static uint64_t view_total(int device, uint64_t device_total)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit)
        return device_total;
    return hami_options()->is_oversubscribed ? limit : smaller(limit, device_total);
}

/*
 * A device's memory for its container. total is the limit, or the device's size if that is smaller. used is the container's use.
 * available is what is left of the total, or of the device if that is less. With CUDA_OVERSUBSCRIBE the device does not count. used
 * + available <= total.
 */
struct view {
    uint64_t total, used, available;
};

/* Turn the device's numbers into the container's. Returns false, and changes nothing, if the device has no limit. */
static bool view_memory(int device, struct view *view)
{
    uint64_t left;

    if (!hami_region_limit(device))
        return false;
    hami_region_sweep_if_stale();
    hami_pools_refresh_device(device);
    hami_overhead_refresh(device);
    hami_overhead_refresh_if_stale(device);
    view->total = view_total(device, view->total);
    view->used = smaller(hami_region_used(device), view->total);
    left = view->total - view->used;
    view->available = hami_options()->is_oversubscribed ? left : smaller(view->available, left);
    return true;
}

HAMI_EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = HAMI_REAL_CUDA(cuDeviceTotalMem_v2)(bytes, device);

    if (result == CUDA_SUCCESS && bytes)
        *bytes = view_total(hami_device_of_ordinal(device), *bytes);
    return result;
}

HAMI_EXPORT CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    CUresult result = HAMI_REAL_CUDA(cuDeviceTotalMem)(bytes, device);

    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned int)smaller(view_total(hami_device_of_ordinal(device), *bytes), UINT32_MAX);
    return result;
}

/* The body of both versions. Either pointer may be NULL if the driver accepts it. `most` is the largest number that fits. */
#define GET_INFO(symbol, available, total, most)                                                    \
    do {                                                                                            \
        CUresult result_ = HAMI_REAL_CUDA(symbol)(available, total);                                \
        struct view view_;                                                                          \
                                                                                                    \
        if (result_ != CUDA_SUCCESS)                                                                \
            return result_;                                                                         \
        view_ = (struct view){(total) ? *(total) : (most), 0, (available) ? *(available) : (most)}; \
        if (!view_memory(hami_current_device(), &view_))                                            \
            return result_;                                                                         \
        if (available)                                                                              \
            *(available) = (__typeof__(*(available)))smaller(view_.available, (most));              \
        if (total)                                                                                  \
            *(total) = (__typeof__(*(total)))smaller(view_.total, (most));                          \
        return result_;                                                                             \
    } while (0)

HAMI_EXPORT CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    GET_INFO(cuMemGetInfo_v2, available, total, SIZE_MAX);
}

HAMI_EXPORT CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    GET_INFO(cuMemGetInfo, available, total, UINT32_MAX);
}

/* Replace total, used and available memory by the container's. Returns false if there is no limit. */
static bool container_memory(nvmlDevice_t handle, unsigned long long *total, unsigned long long *used,
                             unsigned long long *available)
{
    struct view view = {.total = *total, .available = *available};

    if (!view_memory(hami_nvml_device(handle), &view))
        return false;
    *total = view.total;
    *used = view.used;
    *available = view.available;
    return true;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetMemoryInfo)(device, memory));

    if (result == NVML_SUCCESS)
        container_memory(device, &memory->total, &memory->used, &memory->free);
    return result;
}

/* What others use of the device is reported as reserved here, so that the parts add up to the total. */
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetMemoryInfo_v2)(device, memory));

    if (result == NVML_SUCCESS && container_memory(device, &memory->total, &memory->used, &memory->free))
        memory->reserved = memory->total - memory->used - memory->free;
    return result;
}
