/*
 * Events: the lines of the node's `xid` file.
 */
#include <stdlib.h>
#include <time.h>

#include "driver/driver.h"
#include "hardware/faults.h"
#include "nvml/fake.h"

#define POLL_NS 100000000
#define SUPPORTED (nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError | nvmlEventTypeDoubleBitEccError)

struct nvmlEventSet_st {
    long offset; /* in the `xid` file */
    unsigned long long types[HW_DEVICES_MAX]; /* that were registered for a GPU */
};

/* ECC events only with ECC. */
static unsigned long long supported(nvmlDevice_t device)
{
    return fake_nvml_has_ecc(device) ? SUPPORTED : nvmlEventTypeXidCriticalError;
}

API(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t device, unsigned long long *types)
{
    nvmlReturn_t result = fake_nvml_check(device, types);

    if (result == NVML_SUCCESS)
        *types = supported(device);
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
    (*set)->offset = hw_report_end();
    return NVML_SUCCESS;
}

API(nvmlEventSetFree, nvmlEventSet_t set)
{
    free(set);
    return NVML_SUCCESS;
}

/* An event of a MIG instance is one of its GPU. */
API(nvmlDeviceRegisterEvents, nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
    nvmlReturn_t result = fake_nvml_check(device, set);

    if (result != NVML_SUCCESS)
        return result;
    if (types & ~supported(device) || hw_device(device->physical)->parent >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    set->types[device->physical] |= types;
    return NVML_SUCCESS;
}

static nvmlEventData_t event_of(const struct hw_report *report)
{
    static const unsigned long long types[] = {[HW_XID] = nvmlEventTypeXidCriticalError,
                                               [HW_SINGLE_BIT_ECC] = nvmlEventTypeSingleBitEccError,
                                               [HW_DOUBLE_BIT_ECC] = nvmlEventTypeDoubleBitEccError};
    const struct hw_device *device = hw_device(report->device);
    bool is_instance = device->parent >= 0;

    return (nvmlEventData_t){.device = fake_nvml_handle(is_instance ? device->parent : report->device),
                             .eventType = types[report->kind],
                             .eventData = report->xid,
                             .gpuInstanceId = is_instance ? (unsigned int)device->instance : NO_INSTANCE,
                             .computeInstanceId = is_instance ? (unsigned int)device->compute : NO_INSTANCE};
}

static bool next_event(nvmlEventSet_t set, nvmlEventData_t *event)
{
    struct hw_report report;

    while (hw_next_report(&set->offset, &report)) {
        *event = event_of(&report);
        if (event->device && set->types[event->device->physical] & event->eventType)
            return true;
    }
    return false;
}

/* Source: NVML API reference, nvmlEventSetWait_v2: NVML_ERROR_GPU_IS_LOST if any GPU has fallen off the bus. */
static bool has_lost_device(nvmlEventSet_t set)
{
    for (int row = 0; row < hw_device_count(); row++) {
        nvmlDevice_t device = fake_nvml_handle(row);

        if (device && set->types[row] && fault_is_lost(row))
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
