/*
 * The processes that NVML lists for a device: those with a context, all of them for computing. Each is accounted while it lives,
 * and has an encoder session, so that those calls have something to return.
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

/*
 * Write the processes that have room, and return how many a device has. The versions of the structure differ in length: `stride`.
 */
static unsigned int write_processes(int row, void *processes, unsigned int room, size_t stride)
{
    static _Thread_local struct hw_process_use use[HW_PROCESSES_MAX];
    const struct hw_device *device = hw_device(row);
    unsigned int instance = device->parent < 0 ? NO_INSTANCE : (unsigned int)device->instance;
    unsigned int found = (unsigned int)hw_processes(row, use, HW_PROCESSES_MAX);

    for (unsigned int index = 0; processes && index < found && index < room; index++) {
        nvmlProcessDetail_v1_t entry = {fake_nvml_pid(use[index].pid), use[index].used_bytes, instance,
                                        device->parent < 0 ? NO_INSTANCE : (unsigned int)device->compute, 0};

        memcpy((char *)processes + index * stride, &entry, stride);
    }
    return found;
}

/* A GPU's processes include those of its MIG instances. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, void *processes, size_t stride)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, found = 0;

    if (result != NVML_SUCCESS)
        return result;
    room = processes ? *count : 0;
    for (int row = 0; row < hw_device_count(); row++) {
        if (row != device->physical && hw_device(row)->parent != device->physical)
            continue;
        found +=
            write_processes(row, found < room ? (char *)processes + found * stride : NULL, found < room ? room - found : 0, stride);
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* What an MPS server has of a device that a client uses. */
#define SERVER_BYTES (30ull << 20)

/*
 * Under an MPS server with FAKE_DRIVER_MPS_SERVER for a pid, the server is what computes, once it has a client. Its clients have a
 * list of their own.
 */
static nvmlReturn_t list_computing(nvmlDevice_t device, unsigned int *count, void *processes, size_t stride)
{
    const char *server = variable("FAKE_DRIVER_MPS_SERVER");
    nvmlProcessDetail_v1_t entry = {server ? (unsigned int)strtoul(server, NULL, 10) : 0, SERVER_BYTES, NO_INSTANCE, NO_INSTANCE,
                                    0};
    unsigned int clients = 0, room = count ? *count : 0;
    nvmlReturn_t result;

    if (!server)
        return list_processes(device, count, processes, stride);
    result = list_processes(device, &clients, NULL, stride);
    if (result != NVML_SUCCESS && result != NVML_ERROR_INSUFFICIENT_SIZE)
        return result;
    *count = clients > 0;
    if (processes && room >= *count && *count)
        memcpy(processes, &entry, stride);
    return *count > (processes ? room : 0) ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

static nvmlReturn_t list_clients(nvmlDevice_t device, unsigned int *count, void *processes, size_t stride)
{
    return variable("FAKE_DRIVER_MPS_SERVER") ? list_processes(device, count, processes, stride)
                                              : fake_nvml_number(device, count, 0);
}

API(nvmlDeviceGetComputeRunningProcesses, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *processes)
{
    return list_computing(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_computing(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
    return list_computing(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetRunningProcessDetailList, nvmlDevice_t device, nvmlProcessDetailList_t *list)
{
    if (!list || list->version != nvmlProcessDetailList_v1)
        return list ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    if (list->mode == NVML_PROCESS_MODE_COMPUTE || list->mode == NVML_PROCESS_MODE_ALL)
        return list_processes(device, &list->numProcArrayEntries, list->procArray, sizeof(*list->procArray));
    return fake_nvml_number(device, &list->numProcArrayEntries, 0);
}

API(nvmlDeviceGetAccountingPids, nvmlDevice_t device, unsigned int *count, unsigned int *pids)
{
    return list_processes(device, count, pids, sizeof(*pids));
}

API(nvmlDeviceGetEncoderSessions, nvmlDevice_t device, unsigned int *count, nvmlEncoderSessionInfo_t *sessions)
{
    nvmlProcessInfo_v1_t processes[HW_PROCESSES_MAX];
    unsigned int room = sessions && count ? *count : 0, found = HW_PROCESSES_MAX;
    nvmlReturn_t result = fake_nvml_check(device, count);

    if (result == NVML_SUCCESS)
        result = list_processes(device, &found, processes, sizeof(processes[0]));
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
        result = list_processes(device, &found, processes, sizeof(processes[0]));
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
    return list_clients(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_clients(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
    return list_clients(device, count, processes, sizeof(*processes));
}
