/*
 * What NVML tells a container of its devices: its limit and use for their memory, its own processes for the node's.
 *
 * The driver is asked first and its errors stand; devices the region does not know, such as MIG instances, are answered by the driver
 * alone. Processes are named by the pids the container knows them by, so no host pid is needed.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "hooks.h"
#include "memory_view.h"
#include "process.h"
#include "region.h"

#define NO_INSTANCE 0xffffffffu

/* The region index of an NVML device, or -1 to leave the driver's answer alone. */
static int device_of(nvmlDevice_t device)
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

    if (!hami_view_memory(device_of(handle), &view))
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

/* Both process structures begin with the pid and the memory; `stride` is the caller's. Returns how many processes there are. */
static unsigned int list_container(int device, void *processes, unsigned int room, size_t stride)
{
    const struct hami_slot *slot;
    unsigned int found = 0;

    hami_region_sweep();
    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++) {
        nvmlProcessInfo_v2_t entry = {(unsigned int)slot->pid, slot->used[device].total, NO_INSTANCE, NO_INSTANCE};

        if (slot->pid <= 0 || !entry.usedGpuMemory)
            continue;
        if (found < room)
            memcpy((char *)processes + found * stride, &entry, stride);
        found++;
    }
    return found;
}

/*
 * Answer a process list. `result` is what the driver says when asked how many there are: any error but "the list is longer than
 * zero" is the caller's.
 */
static nvmlReturn_t answer_list(nvmlReturn_t result, int device, unsigned int *count, void *processes, size_t stride,
                                bool has_processes)
{
    unsigned int room = processes ? *count : 0;
    unsigned int found;

    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    found = has_processes ? list_container(device, processes, room, stride) : 0;
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

#define LIST(symbol, has_processes)                                                                                   \
    do {                                                                                                              \
        __typeof__(&symbol) real = HAMI_REAL_NVML(symbol);                                                            \
        int index = real && count ? device_of(device) : -1;                                                           \
        unsigned int asked = 0;                                                                                       \
                                                                                                                      \
        if (!real)                                                                                                    \
            return NVML_ERROR_FUNCTION_NOT_FOUND;                                                                     \
        if (index < 0)                                                                                                \
            return real(device, count, processes);                                                                    \
        return answer_list(HAMI_INSIDE(real(device, &asked, NULL)), index, count, processes, sizeof(*processes),      \
                           has_processes);                                                                            \
    } while (0)

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                              nvmlProcessInfo_v1_t *processes)
{
    LIST(nvmlDeviceGetComputeRunningProcesses, true);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetComputeRunningProcesses_v2, true);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetComputeRunningProcesses_v3, true);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                               nvmlProcessInfo_v1_t *processes)
{
    LIST(nvmlDeviceGetGraphicsRunningProcesses, false);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                  nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, false);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                  nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, false);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count,
                                                                 nvmlProcessInfo_v1_t *processes)
{
    LIST(nvmlDeviceGetMPSComputeRunningProcesses, false);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count,
                                                                    nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, false);
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count,
                                                                    nvmlProcessInfo_v2_t *processes)
{
    LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, false);
}

/* The container's pid of a process that NVML names, or 0 when it is not the container's. */
static unsigned int container_pid(unsigned int reported)
{
    const struct hami_slot *slot;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++)
        if (slot->pid && (unsigned int)slot->host_pid == reported)
            return (unsigned int)slot->pid;
    return 0;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count, unsigned long long last_seen)
{
    __typeof__(&nvmlDeviceGetProcessUtilization) real = HAMI_REAL_NVML(nvmlDeviceGetProcessUtilization);
    unsigned int kept = 0;
    nvmlReturn_t result;

    if (!real)
        return NVML_ERROR_FUNCTION_NOT_FOUND;
    result = HAMI_INSIDE(real(device, samples, count, last_seen));
    if (result != NVML_SUCCESS || !samples || device_of(device) < 0)
        return result;
    for (unsigned int index = 0; index < *count; index++) {
        unsigned int pid = container_pid(samples[index].pid);

        if (!pid)
            continue;
        samples[kept] = samples[index];
        samples[kept++].pid = pid;
    }
    *count = kept;
    return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* The one NVML call that answers with text; it cannot say that it is missing by a number. */
HAMI_EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
    __typeof__(&nvmlErrorString) real = HAMI_REAL_NVML(nvmlErrorString);

    return real ? real(result) : "NVML is not installed";
}
