/*
 * What NVML tells a container of its devices' memory: its limit and use.
 *
 * The driver is asked first and its errors stand; devices the region does not know are answered by the driver alone.
 */
#include "nvml_view.h"

#include "hooks.h"
#include "memory_view.h"
#include "process.h"
#include "region.h"

int hami_nvml_device(nvmlDevice_t device)
{
    char uuid[HAMI_UUID_BYTES];

    if (hami_inside || !hami_process_attach() || !hami_real.nvmlDeviceGetUUID ||
        HAMI_INSIDE(hami_real.nvmlDeviceGetUUID(device, uuid, sizeof(uuid))) != NVML_SUCCESS)
        return -1;
    return hami_region_device(uuid);
}

/* Total, use and free memory as the container has them. Returns false when there is no limit to show. */
static bool container_memory(nvmlDevice_t handle, unsigned long long *total, unsigned long long *used,
                             unsigned long long *available)
{
    struct hami_memory_view view = {.total = *total, .available = *available};

    if (!hami_view_memory(hami_nvml_device(handle), &view))
        return false;
    *total = view.total;
    *used = view.used;
    *available = view.available;
    return true;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    __typeof__(&nvmlDeviceGetMemoryInfo) real = HAMI_REAL_NVML(nvmlDeviceGetMemoryInfo);
    nvmlReturn_t result;

    if (!real)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    result = HAMI_INSIDE(real(device, memory));
    if (result == NVML_SUCCESS)
        container_memory(device, &memory->total, &memory->used, &memory->free);
    return result;
}

/* What neighbours hold of the card beyond their own shares is reserved here, so that the parts add up to the total. */
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    __typeof__(&nvmlDeviceGetMemoryInfo_v2) real = HAMI_REAL_NVML(nvmlDeviceGetMemoryInfo_v2);
    nvmlReturn_t result;

    if (!real)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    result = HAMI_INSIDE(real(device, memory));
    if (result == NVML_SUCCESS && container_memory(device, &memory->total, &memory->used, &memory->free))
        memory->reserved = memory->total - memory->used - memory->free;
    return result;
}

/* The one NVML call that answers with text; it cannot say that it is missing by a number. */
HAMI_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    __typeof__(&nvmlErrorString) real = HAMI_REAL_NVML(nvmlErrorString);

    return real ? real(result) : "NVML is not installed";
}
