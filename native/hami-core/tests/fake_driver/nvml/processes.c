/*
 * The processes that NVML lists for a device: those with a context, all of them for computing or under MPS. Each is accounted while
 * it lives, and has an encoder session, so that those calls have something to return.
 */
#include <stdlib.h>
#include <string.h>

#include "driver/variables.h"
#include "nvml/fake.h"

unsigned int fake_nvml_pid(pid_t pid)
{
    const char *offset = variable("FAKE_DRIVER_PID_OFFSET");

    return (unsigned int)pid + (offset ? (unsigned int)strtoul(offset, NULL, 10) : 0);
}

/* Under MPS a server computes for its clients, which have a list of their own. */
enum which { ALL_PROCESSES, COMPUTING, MPS_CLIENTS };

static bool is_listed(const struct hw_process_use *use, enum which which)
{
    return which == ALL_PROCESSES || use->is_mps_client == (which == MPS_CLIENTS);
}

/*
 * Write the processes that have room, and return how many a device has. The versions of the structure differ in length: `stride`.
 */
static unsigned int write_processes(int row, enum which which, void *processes, unsigned int room, size_t stride)
{
    static _Thread_local struct hw_process_use use[HW_PROCESSES_MAX];
    const struct hw_device *device = hw_device(row);
    unsigned int instance = device->parent < 0 ? NO_INSTANCE : (unsigned int)device->instance;
    unsigned int found = (unsigned int)hw_processes(row, use, HW_PROCESSES_MAX), count = 0;

    for (unsigned int index = 0; index < found; index++) {
        nvmlProcessDetail_v1_t entry = {fake_nvml_pid(use[index].pid), use[index].used_bytes, instance,
                                        device->parent < 0 ? NO_INSTANCE : (unsigned int)device->compute, 0};

        if (!is_listed(&use[index], which))
            continue;
        if (processes && count < room)
            memcpy((char *)processes + count * stride, &entry, stride);
        count++;
    }
    return count;
}

/* A GPU's processes include those of its MIG instances. */
static nvmlReturn_t list_processes(nvmlDevice_t device, enum which which, unsigned int *count, void *processes, size_t stride)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, found = 0;

    if (result != NVML_SUCCESS)
        return result;
    room = processes ? *count : 0;
    for (int row = 0; row < hw_device_count(); row++) {
        if (row != device->physical && hw_device(row)->parent != device->physical)
            continue;
        found += write_processes(row, which, found < room ? (char *)processes + found * stride : NULL,
                                 found < room ? room - found : 0, stride);
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

API(nvmlDeviceGetComputeRunningProcesses, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *processes)
{
    return list_processes(device, COMPUTING, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_processes(device, COMPUTING, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
    return list_processes(device, COMPUTING, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    enum which which;

    if (!list || list->version != nvmlProcessDetailList_v1)
        return list ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    if (list->mode == NVML_PROCESS_MODE_GRAPHICS)
        return fake_nvml_number(device, &list->numProcArrayEntries, 0);
    which = list->mode == NVML_PROCESS_MODE_COMPUTE ? COMPUTING : list->mode == NVML_PROCESS_MODE_MPS ? MPS_CLIENTS : ALL_PROCESSES;
    return list_processes(device, which, &list->numProcArrayEntries, list->procArray, sizeof(*list->procArray));
}

API(nvmlDeviceGetAccountingPids, nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    return list_processes(device, ALL_PROCESSES, count, pids, sizeof(*pids));
}

API(nvmlDeviceGetEncoderSessions, nvmlDevice_t device, unsigned int *count, nvmlEncoderSessionInfo_t *sessions)
{
    nvmlProcessInfo_v1_t processes[HW_PROCESSES_MAX];
    unsigned int room = sessions && count ? *count : 0, found = HW_PROCESSES_MAX;
    nvmlReturn_t result = fake_nvml_check(device, count);

    if (result == NVML_SUCCESS)
        result = list_processes(device, ALL_PROCESSES, &found, processes, sizeof(processes[0]));
    if (result != NVML_SUCCESS)
        return result;
    for (unsigned int index = 0; index < found && index < room; index++)
        sessions[index] = (nvmlEncoderSessionInfo_t){.sessionId = index + 1, .pid = processes[index].pid};
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* What a process has now counts as the most it had. */
API(nvmlDeviceGetAccountingStats_v2, nvmlDevice_t device, nvmlAccountingStats_v2_t *stats)
{
    nvmlProcessInfo_v1_t processes[HW_PROCESSES_MAX];
    unsigned int found = HW_PROCESSES_MAX;
    nvmlReturn_t result = fake_nvml_check(device, stats);

    if (result == NVML_SUCCESS)
        result = list_processes(device, ALL_PROCESSES, &found, processes, sizeof(processes[0]));
    for (unsigned int index = 0; result == NVML_SUCCESS && index < found; index++) {
        if (processes[index].pid != stats->pid)
            continue;
        *stats = (nvmlAccountingStats_v2_t){.pid = stats->pid, .isRunning = 1, .maxMemoryUsage = processes[index].usedGpuMemory};
        return NVML_SUCCESS;
    }
    return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

API(nvmlDeviceGetAccountingStats, nvmlDevice_t device, unsigned int pid, nvmlAccountingStats_t *stats)
{
    nvmlAccountingStats_v2_t whole = {.pid = pid};
    nvmlReturn_t result = stats ? nvmlDeviceGetAccountingStats_v2(device, &whole) : NVML_ERROR_INVALID_ARGUMENT;

    if (result == NVML_SUCCESS)
        *stats = (nvmlAccountingStats_t){.maxMemoryUsage = whole.maxMemoryUsage, .isRunning = whole.isRunning};
    return result;
}

#define NO_PROCESSES(name, process)                                         \
    API(name, nvmlDevice_t device, unsigned int *count, process *processes) \
    {                                                                       \
        (void)processes;                                                    \
        return fake_nvml_number(device, count, 0);                          \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t)

API(nvmlDeviceGetMPSComputeRunningProcesses, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *processes)
{
    return list_processes(device, MPS_CLIENTS, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_processes(device, MPS_CLIENTS, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
    return list_processes(device, MPS_CLIENTS, count, processes, sizeof(*processes));
}
