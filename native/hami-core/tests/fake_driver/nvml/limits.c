/*
 * NVML's limits on the memory that a cgroup may have of a device.
 *
 * Source: NVML API reference, nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1.
 */
#include "hardware/limits.h"

#include <stdlib.h>

#include "driver/driver.h"
#include "hardware/cgroup.h"
#include "nvml/fake.h"
#include "nvml/mig.h"

enum { FIRST_DRIVER = 615 };

/* The driver has it since r615. It needs cgroup v2, and a GPU that is not in MIG mode. */
static bool is_supported(nvmlDevice_t device)
{
    char version[64];

    driver_version(version, sizeof(version));
    return strtol(version, NULL, 10) >= FIRST_DRIVER && hw_device(device->physical)->parent < 0 &&
           !hw_is_partitioned(device->physical) && cgroup_is_supported();
}

static nvmlReturn_t check(nvmlDevice_t device, const void *limits)
{
    nvmlReturn_t result = fake_nvml_check(device, limits);

    return result == NVML_SUCCESS && !is_supported(device) ? NVML_ERROR_NOT_SUPPORTED : result;
}

static bool is_valid(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits)
{
    uint64_t total = hw_device(device->physical)->memory_bytes;

    return limits->nameSpace && limits->softLimit <= limits->hardLimit && limits->softLimit <= total &&
           (limits->hardLimit <= total || limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX);
}

API(nvmlDeviceSetMemoryLimits_v1, nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    nvmlReturn_t result = check(device, limits);
    uint64_t cgroup;

    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    if (result != NVML_SUCCESS)
        return result;
    if (!is_valid(device, limits))
        return NVML_ERROR_INVALID_ARGUMENT;
    cgroup = cgroup_of_folder(limits->nameSpace);
    if (!cgroup)
        return NVML_ERROR_OPERATING_SYSTEM;
    return hw_limit_set(device->physical, cgroup, limits->nameSpace, limits->softLimit, limits->hardLimit) ? NVML_SUCCESS
                                                                                                           : NVML_ERROR_UNKNOWN;
}

API(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    nvmlReturn_t result = check(device, limits);
    struct hw_limit_state state;
    uint64_t cgroup;

    if (result != NVML_SUCCESS)
        return result;
    if (!limits->nameSpace)
        return NVML_ERROR_INVALID_ARGUMENT;
    cgroup = cgroup_of_folder(limits->nameSpace);
    if (!cgroup)
        return NVML_ERROR_OPERATING_SYSTEM;
    if (!hw_limit_get(device->physical, cgroup, &state))
        return NVML_ERROR_NOT_FOUND;
    limits->softLimit = state.soft_bytes;
    limits->hardLimit = state.hard_bytes;
    limits->currentUsed = state.used_bytes;
    return NVML_SUCCESS;
}
