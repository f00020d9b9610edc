/*
 * MIG instances in NVML. Each GPU instance has one compute instance, number 0.
 */
#include <string.h>

#include "nvml/fake.h"

enum { INSTANCES_MAX = 7 };

static bool is_instance(nvmlDevice_t device)
{
    return hw_device(device->physical)->parent >= 0;
}

uint64_t fake_nvml_used_bytes(nvmlDevice_t device)
{
    uint64_t used = hw_memory_used(device->physical);

    for (int row = 0; row < hw_device_count(); row++)
        if (hw_device(row)->parent == device->physical)
            used += hw_memory_used(row);
    return used;
}

API(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t result = fake_nvml_check(device, current);

    if (result != NVML_SUCCESS || !pending)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (!hw_is_partitioned(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *count)
{
    return fake_nvml_number(device, count, device && hw_is_partitioned(device->physical) ? INSTANCES_MAX : 0);
}

API(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance)
{
    nvmlReturn_t result = fake_nvml_check(device, instance);

    if (result != NVML_SUCCESS || index >= INSTANCES_MAX)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    for (int row = 0; row < hw_device_count(); row++) {
        nvmlDevice_t handle = hw_device(row)->parent == device->physical ? fake_nvml_handle(row) : NULL;

        if (handle && handle->index == index) {
            *instance = handle;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t device, unsigned int *is_mig)
{
    return fake_nvml_number(device, is_mig, device && is_instance(device));
}

API(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t instance, nvmlDevice_t *device)
{
    nvmlReturn_t result = fake_nvml_check(instance, device);

    if (result != NVML_SUCCESS || !is_instance(instance))
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *device = fake_nvml_handle(hw_device(instance->physical)->parent);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetGpuInstanceId, nvmlDevice_t instance, unsigned int *id)
{
    nvmlReturn_t result = fake_nvml_check(instance, id);

    if (result != NVML_SUCCESS || !is_instance(instance))
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;
    *id = (unsigned int)hw_device(instance->physical)->instance;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetComputeInstanceId, nvmlDevice_t instance, unsigned int *id)
{
    nvmlReturn_t result = fake_nvml_check(instance, id);

    if (result != NVML_SUCCESS || !is_instance(instance))
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;
    *id = 0;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetAttributes_v2, nvmlDevice_t instance, nvmlDeviceAttributes_t *attributes)
{
    nvmlReturn_t result = fake_nvml_check(instance, attributes);

    if (result != NVML_SUCCESS || !is_instance(instance))
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;
    memset(attributes, 0, sizeof(*attributes));
    attributes->multiprocessorCount = 14;
    attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = 1;
    attributes->memorySizeMB = hw_device(instance->physical)->memory_bytes / HW_MIB;
    return NVML_SUCCESS;
}
