/*
 * NVML's limits on the memory that a cgroup may have of a device.
 *
 * Source: NVML API reference, nvmlDeviceSetMemoryLimits_v1 and nvmlDeviceGetMemoryLimits_v1.
 */
#include "hardware/limits.h"

#include <linux/capability.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/driver.h"
#include "nvml/fake.h"
#include "nvml/mig.h"

enum { FIRST_DRIVER = 615 };

/* The driver has it since r615, for whole GPUs. One in MIG mode takes limits without an error, and nothing is charged. */
static bool is_supported(nvmlDevice_t device)
{
    char version[64];

    driver_version(version, sizeof(version));
    return strtol(version, NULL, 10) >= FIRST_DRIVER && hw_device(device->physical)->parent < 0 && hw_memacct() != HW_MEMACCT_NONE;
}

static nvmlReturn_t check(nvmlDevice_t device, const void *limits)
{
    nvmlReturn_t result = fake_nvml_check(device, limits);

    return result == NVML_SUCCESS && !is_supported(device) ? NVML_ERROR_NOT_SUPPORTED : result;
}

/* The driver's own map is changed by a control call, which only an administrator may make. A node's owner who is not the machine's root passes for one. */
static nvmlReturn_t check_permission(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {0};
    nvmlReturn_t result = fake_nvml_check_root();

    if (result != NVML_SUCCESS || hw_memacct() != HW_MEMACCT_MISC || geteuid() != 0)
        return result;
    if (syscall(SYS_capget, &header, data) != 0 || !(data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective & CAP_TO_MASK(CAP_SYS_ADMIN)))
        return NVML_ERROR_NO_PERMISSION;
    return NVML_SUCCESS;
}

static bool is_valid(nvmlDevice_t device, const nvmlSetMemoryLimits_v1_t *limits)
{
    uint64_t total = hw_device(device->physical)->memory_bytes;

    return limits->nameSpace && limits->softLimit <= limits->hardLimit && limits->softLimit <= total &&
           (limits->hardLimit <= total || limits->hardLimit == NVML_DEVICE_MEMORY_LIMIT_MAX);
}

static nvmlReturn_t answer(enum hw_limit_result result)
{
    static const nvmlReturn_t results[] = {[HW_LIMIT_DONE] = NVML_SUCCESS,
                                           [HW_LIMIT_NO_CGROUP] = NVML_ERROR_OPERATING_SYSTEM,
                                           [HW_LIMIT_NOT_SUPPORTED] = NVML_ERROR_NOT_SUPPORTED,
                                           [HW_LIMIT_NOT_FOUND] = NVML_ERROR_NOT_FOUND,
                                           [HW_LIMIT_NO_PERMISSION] = NVML_ERROR_NO_PERMISSION,
                                           [HW_LIMIT_BELOW_USE] = NVML_ERROR_UNKNOWN,
                                           [HW_LIMIT_TOO_MANY] = NVML_ERROR_UNKNOWN};

    return results[result];
}

API(nvmlDeviceSetMemoryLimits_v1, nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
    nvmlReturn_t result = check(device, limits);

    if (result == NVML_SUCCESS)
        result = check_permission();
    if (result != NVML_SUCCESS)
        return result;
    if (!is_valid(device, limits))
        return NVML_ERROR_INVALID_ARGUMENT;
    return answer(hw_limit_set(device->physical, limits->nameSpace, limits->softLimit, limits->hardLimit));
}

API(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
    nvmlReturn_t result = check(device, limits);
    struct hw_limit_state state;

    if (result != NVML_SUCCESS)
        return result;
    if (!limits->nameSpace)
        return NVML_ERROR_INVALID_ARGUMENT;
    result = answer(hw_limit_get(device->physical, limits->nameSpace, &state));
    if (result != NVML_SUCCESS)
        return result;
    limits->softLimit = state.soft_bytes;
    limits->hardLimit = state.hard_bytes;
    limits->currentUsed = state.used_bytes;
    return NVML_SUCCESS;
}
