/*
 * Events: the lines of the node's `xid` file.
 */
#include <stdlib.h>
#include <time.h>

#include "hardware/driver.h"
#include "hardware/faults.h"
#include "nvml/fake.h"

#define POLL_NS 100000000
#define XID_CRITICAL_ERROR 8ull

typedef struct nvmlEventSet_st {
    long xid_offset;
    bool is_registered[HW_DEVICES_MAX];
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType, eventData;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

API(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t device, unsigned long long *types)
{
    nvmlReturn_t result = fake_nvml_check(device, types);

    if (result == NVML_SUCCESS)
        *types = XID_CRITICAL_ERROR;
    return result;
}

API(nvmlEventSetCreate, nvmlEventSet_t *set)
{
    if (!fake_nvml_is_open())
        return NVML_ERROR_UNINITIALIZED;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    *set = calloc(1, sizeof(**set));
    if (!*set)
        return NVML_ERROR_UNKNOWN;
    (*set)->xid_offset = hw_xid_end();
    return NVML_SUCCESS;
}

API(nvmlEventSetFree, nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

API(nvmlDeviceRegisterEvents, nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    nvmlReturn_t result = fake_nvml_check(device, set);

    if (result == NVML_SUCCESS && (types & ~XID_CRITICAL_ERROR))
        return NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        set->is_registered[device->index] = true;
    return result;
}

static bool next_event(nvmlEventSet_t set, nvmlEventData_t *event)
{
    unsigned int xid;
    int physical;

    while (hw_next_xid(&set->xid_offset, &physical, &xid)) {
        nvmlDevice_t device = fake_nvml_handle(physical);

        if (device && set->is_registered[device->index]) {
            *event = (nvmlEventData_t){device, XID_CRITICAL_ERROR, xid, NO_INSTANCE, NO_INSTANCE};
            return true;
        }
    }
    return false;
}

/* Source: NVML API reference, nvmlEventSetWait_v2: NVML_ERROR_GPU_IS_LOST if any GPU has fallen off the bus. */
static bool has_lost_device(nvmlEventSet_t set)
{
    for (int row = 0; row < hw_device_count(); row++) {
        nvmlDevice_t device = fake_nvml_handle(row);

        if (device && set->is_registered[device->index] && fault_is_lost(row))
            return true;
    }
    return false;
}

API(nvmlEventSetWait_v2, nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms)
{
    uint64_t deadline = hw_now_ns() + (uint64_t)timeout_ms * 1000000u;

    if (!fake_nvml_is_open())
        return NVML_ERROR_UNINITIALIZED;
    if (!set || !event)
        return NVML_ERROR_INVALID_ARGUMENT;
    while (!next_event(set, event)) {
        if (driver_is_gone())
            return NVML_ERROR_UNKNOWN;
        if (has_lost_device(set))
            return NVML_ERROR_GPU_IS_LOST;
        if (hw_now_ns() >= deadline)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
    }
    return NVML_SUCCESS;
}

API(nvmlEventSetWait, nvmlEventSet_t set, nvmlEventData_t *event, unsigned int timeout_ms)
{
    return nvmlEventSetWait_v2(set, event, timeout_ms);
}
