/*
 * NVML's lists of processes, with the container's processes in place of the node's.
 *
 * The driver is asked first, and its errors are returned. Devices that the region does not know are left to the driver. Lists are
 * made from the region, so they need no host pid. Other answers that name processes are NVML's own, without processes that are not
 * known to be the container's. All processes have the pids that the container knows.
 */
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#include "devices.h"
#include "hooks.h"
#include "region.h"

#define NO_INSTANCE 0xffffffffu

/* Lists */

/*
 * Write the container's processes; returns how many there are. The versions of the structure differ in length: `stride` is the
 * caller's.
 */
static unsigned int list_container(int device, void *processes, unsigned int room, size_t stride)
{
    const struct hami_slot *slot;
    unsigned int found = 0;

    hami_region_sweep();
    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++) {
        nvmlProcessDetail_v1_t entry = {(unsigned int)slot->pid, slot->used[device].total, NO_INSTANCE, NO_INSTANCE, 0};

        if (slot->pid <= 0 || !entry.usedGpuMemory)
            continue;
        if (found < room)
            memcpy((char *)processes + found * stride, &entry, stride);
        found++;
    }
    return found;
}

/*
 * Answer a process list. `result` is the driver's answer to a request without a buffer; any error but "insufficient size" is
 * returned.
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

/* The hook of one list. The container's processes compute, so the lists of other kinds are empty. */
#define LIST(symbol, process, has_processes)                                                                                     \
    HAMI_EXPORT nvmlReturn_t symbol(nvmlDevice_t device, unsigned int *count, process *processes)                                \
    {                                                                                                                            \
        __typeof__(&symbol) real = HAMI_REAL_NVML(symbol);                                                                       \
        int index = count ? hami_nvml_device(device) : -1;                                                                       \
        unsigned int asked = 0;                                                                                                  \
                                                                                                                                 \
        if (index < 0)                                                                                                           \
            return real(device, count, processes);                                                                               \
        return answer_list(HAMI_INSIDE(real(device, &asked, NULL)), index, count, processes, sizeof(*processes), has_processes); \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, true)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, true)
LIST(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t, false)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t, false)

/* An unknown version is answered as by a driver that does not know it, because its processes could not be filtered. */
HAMI_EXPORT nvmlReturn_t nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    __typeof__(&nvmlDeviceGetRunningProcessDetailList) real = HAMI_REAL_NVML(nvmlDeviceGetRunningProcessDetailList);
    int index = list ? hami_nvml_device(device) : -1;
    nvmlProcessDetailList_t asked;

    if (index < 0)
        return real(device, list);
    if (list->version != nvmlProcessDetailList_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    asked = (nvmlProcessDetailList_t){.version = list->version, .mode = list->mode};
    return answer_list(HAMI_INSIDE(real(device, &asked)), index, &list->numProcArrayEntries, list->procArray,
                       sizeof(*list->procArray), list->mode == NVML_PROCESS_MODE_COMPUTE || list->mode == NVML_PROCESS_MODE_ALL);
}

/* Other calls that name processes */

/* Return the container's pid of a process that NVML names, or 0 if it is not the container's. */
static unsigned int container_pid(unsigned int reported)
{
    const struct hami_slot *slot;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++)
        if (slot->pid > 0 && (unsigned int)slot->host_pid == reported)
            return (unsigned int)slot->pid;
    return 0;
}

/* Return the pid under which NVML lists a process of the container, or 0. */
static unsigned int reported_pid(unsigned int pid)
{
    const struct hami_slot *slot;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++)
        if (slot->pid > 0 && (unsigned int)slot->pid == pid)
            return (unsigned int)slot->host_pid;
    return 0;
}

/* Keep the container's entries among `count` entries of `stride` bytes with a pid at `pid_at`. Returns how many are left. */
static unsigned int keep_own(void *entries, unsigned int count, size_t stride, size_t pid_at)
{
    unsigned int kept = 0;

    for (unsigned int index = 0; index < count; index++) {
        char *entry = (char *)entries + index * stride;
        unsigned int pid;

        memcpy(&pid, entry + pid_at, sizeof(pid));
        pid = container_pid(pid);
        if (!pid)
            continue;
        memcpy(entry + pid_at, &pid, sizeof(pid));
        memmove((char *)entries + kept++ * stride, entry, stride);
    }
    return kept;
}

#define KEEP_OWN(entries, count, pid) keep_own(entries, count, sizeof(*(entries)), offsetof(__typeof__(*(entries)), pid))

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                         unsigned int *count, unsigned long long last_seen)
{
    nvmlReturn_t result = HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetProcessUtilization)(device, samples, count, last_seen));

    if (result != NVML_SUCCESS || !samples || hami_nvml_device(device) < 0)
        return result;
    *count = KEEP_OWN(samples, *count, pid);
    return *count ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    int index = info ? hami_nvml_device(device) : -1;
    nvmlReturn_t result;

    if (index >= 0 && info->version != nvmlProcessesUtilizationInfo_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetProcessesUtilizationInfo)(device, info));
    if (result != NVML_SUCCESS || index < 0 || !info->procUtilArray)
        return result;
    info->processSamplesCount = KEEP_OWN(info->procUtilArray, info->processSamplesCount, pid);
    return info->processSamplesCount ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* The body of a call that writes `*count` entries, of which `kept` stay. */
#define LIST_OWN(symbol, device, count, entries, kept)                             \
    do {                                                                           \
        __typeof__(&symbol) real_ = HAMI_REAL_NVML(symbol);                        \
        nvmlReturn_t result_ = HAMI_INSIDE(real_(device, count, entries));         \
                                                                                   \
        if (result_ == NVML_SUCCESS && (entries) && hami_nvml_device(device) >= 0) \
            *(count) = (kept);                                                     \
        return result_;                                                            \
    } while (0)

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count, nvmlEncoderSessionInfo_t *sessions)
{
    LIST_OWN(nvmlDeviceGetEncoderSessions, device, count, sessions, KEEP_OWN(sessions, *count, pid));
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count, nvmlFBCSessionInfo_t *sessions)
{
    LIST_OWN(nvmlDeviceGetFBCSessions, device, count, sessions, KEEP_OWN(sessions, *count, pid));
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingPids(nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    LIST_OWN(nvmlDeviceGetAccountingPids, device, count, pids, keep_own(pids, *count, sizeof(*pids), 0));
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats(nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    if (hami_nvml_device(device) >= 0 && !(pid = reported_pid(pid)))
        return NVML_ERROR_NOT_FOUND;
    return HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetAccountingStats)(device, pid, stats));
}

HAMI_EXPORT nvmlReturn_t nvmlDeviceGetAccountingStats_v2(nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    __typeof__(&nvmlDeviceGetAccountingStats_v2) real = HAMI_REAL_NVML(nvmlDeviceGetAccountingStats_v2);
    unsigned int pid = stats ? stats->pid : 0, reported = pid;
    nvmlReturn_t result;

    if (pid && hami_nvml_device(device) >= 0 && !(reported = reported_pid(pid)))
        return NVML_ERROR_NOT_FOUND;
    if (!stats)
        return real(device, stats);
    stats->pid = reported;
    result = HAMI_INSIDE(real(device, stats));
    stats->pid = pid;
    return result;
}
