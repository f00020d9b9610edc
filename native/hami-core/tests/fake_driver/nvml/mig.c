/*
 * MIG's mode, and MIG devices: a compute instance of a GPU instance each.
 */
#include "nvml/mig.h"

#include <string.h>

/* How many MIG devices a GPU of `devices.csv` may have; one whose model has profiles as many as instances of the smallest. */
enum { INSTANCES_MAX = 7 };

static bool is_instance(nvmlDevice_t device)
{
    return hw_device(device->physical)->parent >= 0;
}

nvmlReturn_t fake_nvml_mig_result(enum mig_result result)
{
    static const nvmlReturn_t results[] = {[MIG_DONE] = NVML_SUCCESS,
                                           [MIG_NOT_SUPPORTED] = NVML_ERROR_NOT_SUPPORTED,
                                           [MIG_INVALID] = NVML_ERROR_INVALID_ARGUMENT,
                                           [MIG_IN_USE] = NVML_ERROR_IN_USE,
                                           [MIG_NO_ROOM] = NVML_ERROR_INSUFFICIENT_RESOURCES,
                                           [MIG_NEEDS_RESET] = NVML_ERROR_RESET_REQUIRED};

    return results[result];
}

nvmlReturn_t fake_nvml_check_root(void)
{
    return hw_is_root() ? NVML_SUCCESS : NVML_ERROR_NO_PERMISSION;
}

uint64_t fake_nvml_used_bytes(nvmlDevice_t device)
{
    uint64_t used = hw_memory_used(device->physical);

    for (int row = 0; row < hw_device_count(); row++)
        if (hw_device(row)->parent == device->physical)
            used += hw_memory_used(row);
    return used;
}

/* The instances of `devices.csv` are counted as the container sees them; one that was created keeps its index. */
unsigned int fake_nvml_index(nvmlDevice_t device)
{
    struct mig_gpu_instance gpu_instance;
    struct mig_compute_instance compute_instance;
    unsigned int index = 0;

    if (!is_instance(device))
        return device->index;
    if (mig_of_device(device->physical, &gpu_instance, &compute_instance))
        return compute_instance.index;
    for (int row = 0; row < device->physical; row++)
        index += hw_device(row)->parent == hw_device(device->physical)->parent && fake_nvml_handle(row);
    return index;
}

/* Mode */

API(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t result = fake_nvml_check(device, current);

    if (result != NVML_SUCCESS || !pending)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (mig_model_of(device->physical)) {
        *current = mig_is_on(device->physical);
        *pending = mig_is_pending(device->physical);
        return NVML_SUCCESS;
    }
    if (!hw_is_partitioned(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *current = *pending = 1;
    return NVML_SUCCESS;
}

API(nvmlDeviceSetMigMode, nvmlDevice_t device, unsigned int mode, nvmlReturn_t *status)
{
    nvmlReturn_t result = fake_nvml_check(device, status);

    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    if (result != NVML_SUCCESS || mode > 1)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (is_instance(device) || !mig_model_of(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *status = fake_nvml_mig_result(mig_set_mode(device->physical, mode == 1));
    return NVML_SUCCESS;
}

/* Devices */

API(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *count)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    const struct mig_model *model;

    if (result != NVML_SUCCESS)
        return result;
    model = mig_model_of(device->physical);
    *count = !hw_is_partitioned(device->physical) ? 0 : model ? model->profiles[0].instances : INSTANCES_MAX;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance)
{
    nvmlReturn_t result = fake_nvml_check(device, instance);

    if (result != NVML_SUCCESS || index >= INSTANCES_MAX)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (mig_model_of(device->physical) && !mig_is_on(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    for (int row = 0; row < hw_device_count(); row++) {
        nvmlDevice_t handle = hw_device(row)->parent == device->physical ? fake_nvml_handle(row) : NULL;

        if (handle && fake_nvml_index(handle) == index) {
            *instance = handle;
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t device, unsigned int *is_mig)
{
    nvmlReturn_t result = fake_nvml_check(device, is_mig);

    if (result == NVML_SUCCESS)
        *is_mig = is_instance(device);
    return result;
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
    *id = (unsigned int)hw_device(instance->physical)->compute;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetAttributes_v2, nvmlDevice_t instance, nvmlDeviceAttributes_t *attributes)
{
    nvmlReturn_t result = fake_nvml_check(instance, attributes);
    struct mig_compute_instance compute_instance;
    struct mig_gpu_instance gpu_instance;
    const struct mig_profile *profile;

    if (result != NVML_SUCCESS || !is_instance(instance))
        return result != NVML_SUCCESS ? result : NVML_ERROR_NOT_SUPPORTED;
    *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = 14,
                                           .gpuInstanceSliceCount = 1,
                                           .computeInstanceSliceCount = 1,
                                           .memorySizeMB = hw_device(instance->physical)->memory_bytes / HW_MIB};
    if (!mig_of_device(instance->physical, &gpu_instance, &compute_instance))
        return NVML_SUCCESS;
    profile = fake_nvml_profile(&gpu_instance);
    attributes->multiprocessorCount = profile->multiprocessors * compute_instance.span.size / profile->slices;
    attributes->sharedCopyEngineCount = profile->copy_engines;
    attributes->sharedDecoderCount = profile->decoders;
    attributes->sharedEncoderCount = profile->encoders;
    attributes->sharedJpegCount = profile->jpegs;
    attributes->sharedOfaCount = profile->ofas;
    attributes->gpuInstanceSliceCount = profile->slices;
    attributes->computeInstanceSliceCount = compute_instance.span.size;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetAttributes, nvmlDevice_t instance, nvmlDeviceAttributes_t *attributes)
{
    return nvmlDeviceGetAttributes_v2(instance, attributes);
}
