/* Which processes NVML lists for a device: those with a context, all of them for computing. */
#include <stdlib.h>
#include <string.h>

#include "nvml_fake.h"

unsigned int fake_nvml_pid(pid_t pid)
{
    const char *offset = getenv("FAKE_DRIVER_PID_OFFSET");

    return (unsigned int)pid + (offset ? (unsigned int)strtoul(offset, NULL, 10) : 0);
}

/* Both process structures begin with the pid and the memory; `stride` tells them apart. */
static nvmlReturn_t list_processes(nvmlDevice_t device, unsigned int *count, void *processes, size_t stride)
{
    static _Thread_local struct hw_process_use use[HW_PROCESSES_MAX];
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int found;

    if (result != NVML_SUCCESS)
        return result;
    found = (unsigned int)hw_processes(device->physical, use, HW_PROCESSES_MAX);
    if (found > *count || (found && !processes)) {
        *count = found;
        return NVML_ERROR_INSUFFICIENT_SIZE;
    }
    for (unsigned int index = 0; index < found; index++) {
        nvmlProcessInfo_v2_t entry = {fake_nvml_pid(use[index].pid), use[index].used_bytes, NO_INSTANCE, NO_INSTANCE};

        memcpy((char *)processes + index * stride, &entry, stride);
    }
    *count = found;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetComputeRunningProcesses, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *processes)
{
    return list_processes(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v2, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_processes(device, count, processes, sizeof(*processes));
}

API(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v2_t *processes)
{
    return list_processes(device, count, processes, sizeof(*processes));
}

#define NO_PROCESSES(name, process)                                                             \
    API(name, nvmlDevice_t device, unsigned int *count, process *processes)                     \
    {                                                                                           \
        (void)processes;                                                                        \
        return fake_nvml_number(device, count, 0);                                              \
    }

NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses, nvmlProcessInfo_v1_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_v2_t)
NO_PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_v2_t)
