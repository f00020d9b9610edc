/* Which processes NVML lists for a device: those with a context, all of them for computing. */
#include <stdlib.h>
#include <string.h>

#include "nvml_fake.h"

unsigned int fake_nvml_pid(pid_t pid)
{
    const char *offset = getenv("FAKE_DRIVER_PID_OFFSET");

    return (unsigned int)pid + (offset ? (unsigned int)strtoul(offset, NULL, 10) : 0);
}

/*
 * Both process structures begin with the pid and the memory; `stride` tells them apart. Returns how many a device has, writing those
 * that have room.
 */
static unsigned int write_processes(int row, void *processes, unsigned int room, size_t stride)
{
    static _Thread_local struct hw_process_use use[HW_PROCESSES_MAX];
    const struct hw_device *device = hw_device(row);
    unsigned int instance = device->parent < 0 ? NO_INSTANCE : (unsigned int)device->instance;
    unsigned int found = (unsigned int)hw_processes(row, use, HW_PROCESSES_MAX);

    for (unsigned int index = 0; processes && index < found && index < room; index++) {
        nvmlProcessInfo_v2_t entry = {fake_nvml_pid(use[index].pid), use[index].used_bytes, instance,
                                      device->parent < 0 ? NO_INSTANCE : 0};

        memcpy((char *)processes + index * stride, &entry, stride);
    }
    return found;
}

/* A GPU's processes are those of its MIG instances too. */
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
        found += write_processes(row, found < room ? (char *)processes + found * stride : NULL, found < room ? room - found : 0,
                                 stride);
    }
    *count = found;
    return found > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
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
