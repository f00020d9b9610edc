/*
 * GPU instances: the profiles of a GPU, and creating, finding and destroying instances.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvml/mig.h"

/* Return a GPU's profile of a kind. A kind that the model lacks is not supported, and one that NVML lacks is invalid. */
static nvmlReturn_t find_kind(nvmlDevice_t device, const void *output, unsigned int kind, const struct mig_profile **profile)
{
    nvmlReturn_t result = fake_nvml_check(device, output);

    if (result != NVML_SUCCESS || kind >= GPU_INSTANCE_KINDS)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *profile = mig_model_of(device->physical) ? mig_profile_of_kind(mig_model_of(device->physical), kind) : NULL;
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Return a GPU's profile of an ID. */
static nvmlReturn_t find_id(nvmlDevice_t device, const void *output, unsigned int id, const struct mig_profile **profile)
{
    nvmlReturn_t result = fake_nvml_check(device, output);

    if (result != NVML_SUCCESS)
        return result;
    if (!mig_model_of(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *profile = mig_profile_of_id(mig_model_of(device->physical), id);
    return *profile ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

/* The same while MIG is on. */
static nvmlReturn_t find_id_with_mig(nvmlDevice_t device, const void *output, unsigned int id, const struct mig_profile **profile)
{
    nvmlReturn_t result = find_id(device, output, id, profile);

    return result == NVML_SUCCESS && !mig_is_on(device->physical) ? NVML_ERROR_NOT_SUPPORTED : result;
}

const struct mig_profile *fake_nvml_profile(const struct mig_gpu_instance *instance)
{
    return mig_profile_of_id(mig_model_of(instance->gpu), instance->profile_id);
}

/* Profiles */

#define FIELDS_OF(profile)                                                                                   \
    .id = (profile)->id, .sliceCount = (profile)->slices, .instanceCount = (profile)->instances,             \
    .multiprocessorCount = (profile)->multiprocessors, .copyEngineCount = (profile)->copy_engines,           \
    .decoderCount = (profile)->decoders, .encoderCount = (profile)->encoders, .jpegCount = (profile)->jpegs, \
    .ofaCount = (profile)->ofas, .memorySizeMB = (profile)->memory_mib

API(nvmlDeviceGetGpuInstanceProfileInfo, nvmlDevice_t device, unsigned int kind, nvmlGpuInstanceProfileInfo_t *info)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_kind(device, info, kind, &profile);

    if (result == NVML_SUCCESS)
        *info = (nvmlGpuInstanceProfileInfo_t){FIELDS_OF(profile)};
    return result;
}

static nvmlReturn_t write_versioned(const struct mig_profile *profile, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    nvmlGpuInstanceProfileInfo_v3_t *newer = (nvmlGpuInstanceProfileInfo_v3_t *)info;

    if (info->version == nvmlGpuInstanceProfileInfo_v2) {
        *info = (nvmlGpuInstanceProfileInfo_v2_t){.version = info->version, FIELDS_OF(profile)};
        snprintf(info->name, sizeof(info->name), "MIG %s", profile->name);
    } else if (info->version == nvmlGpuInstanceProfileInfo_v3) {
        *newer = (nvmlGpuInstanceProfileInfo_v3_t){.version = info->version, FIELDS_OF(profile)};
        snprintf(newer->name, sizeof(newer->name), "MIG %s", profile->name);
    } else {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    return NVML_SUCCESS;
}

API(nvmlDeviceGetGpuInstanceProfileInfoV, nvmlDevice_t device, unsigned int kind, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_kind(device, info, kind, &profile);

    return result == NVML_SUCCESS ? write_versioned(profile, info) : result;
}

API(nvmlDeviceGetGpuInstanceProfileInfoByIdV, nvmlDevice_t device, unsigned int id, nvmlGpuInstanceProfileInfo_v2_t *info)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_id_with_mig(device, info, id, &profile);

    return result == NVML_SUCCESS ? write_versioned(profile, info) : result;
}

API(nvmlDeviceGetGpuInstancePossiblePlacements_v2, nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_id(device, count, id, &profile);
    struct mig_span spans[MIG_PLACEMENTS_MAX];

    if (result != NVML_SUCCESS)
        return result;
    *count = mig_spans(profile, spans);
    for (unsigned int index = 0; placements && index < *count; index++)
        placements[index] = (nvmlGpuInstancePlacement_t){spans[index].start, spans[index].size};
    return NVML_SUCCESS;
}

API(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *placements,
    unsigned int *count)
{
    return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, placements, count);
}

API(nvmlDeviceGetGpuInstanceRemainingCapacity, nvmlDevice_t device, unsigned int id, unsigned int *count)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_id_with_mig(device, count, id, &profile);

    if (result == NVML_SUCCESS)
        *count = mig_capacity(device->physical, profile);
    return result;
}

/* Instances */

struct fake_instance *fake_nvml_instance(uint64_t serial)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct fake_instance *all;
    struct fake_instance *known;

    pthread_mutex_lock(&mutex);
    for (known = all; known && known->serial != serial; known = known->next)
        ;
    if (!known && (known = malloc(sizeof(*known)))) {
        *known = (struct fake_instance){serial, all};
        all = known;
    }
    pthread_mutex_unlock(&mutex);
    return known;
}

nvmlGpuInstance_t fake_nvml_gpu_instance(uint64_t serial)
{
    return (nvmlGpuInstance_t)fake_nvml_instance(serial);
}

nvmlReturn_t fake_nvml_find(nvmlGpuInstance_t handle, struct mig_gpu_instance *found)
{
    if (!fake_nvml_is_open())
        return NVML_ERROR_UNINITIALIZED;
    if (!handle || !mig_find(((struct fake_instance *)handle)->serial, found))
        return NVML_ERROR_INVALID_ARGUMENT;
    return fake_nvml_handle(found->gpu) ? fake_nvml_fault(fake_nvml_handle(found->gpu)) : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned int id, const struct mig_span *span, nvmlGpuInstance_t *instance)
{
    const struct mig_profile *profile;
    nvmlReturn_t result = find_id_with_mig(device, instance, id, &profile);
    uint64_t serial;

    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    if (result == NVML_SUCCESS)
        result = fake_nvml_mig_result(mig_create(device->physical, profile, span, &serial));
    if (result == NVML_SUCCESS)
        *instance = fake_nvml_gpu_instance(serial);
    return result;
}

API(nvmlDeviceCreateGpuInstance, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    return create(device, id, NULL, instance);
}

API(nvmlDeviceCreateGpuInstanceWithPlacement, nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *placement,
    nvmlGpuInstance_t *instance)
{
    if (!placement)
        return NVML_ERROR_INVALID_ARGUMENT;
    return create(device, id, &(struct mig_span){placement->start, placement->size}, instance);
}

API(nvmlGpuInstanceDestroy, nvmlGpuInstance_t instance)
{
    struct mig_gpu_instance found;
    nvmlReturn_t result = fake_nvml_find(instance, &found);

    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    return result == NVML_SUCCESS ? fake_nvml_mig_result(mig_destroy(found.serial)) : result;
}

API(nvmlDeviceGetGpuInstances, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instances, unsigned int *count)
{
    struct mig_gpu_instance all[MIG_GPU_INSTANCES_MAX];
    const struct mig_profile *profile;
    nvmlReturn_t result = find_id_with_mig(device, count, id, &profile);
    unsigned int found;

    if (result != NVML_SUCCESS || !instances)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    found = mig_list(device->physical, all);
    *count = 0;
    for (unsigned int index = 0; index < found; index++)
        if (all[index].profile_id == id)
            instances[(*count)++] = fake_nvml_gpu_instance(all[index].serial);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetGpuInstanceById, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance)
{
    struct mig_gpu_instance all[MIG_GPU_INSTANCES_MAX];
    nvmlReturn_t result = fake_nvml_check(device, instance);
    unsigned int found;

    if (result != NVML_SUCCESS)
        return result;
    if (!mig_model_of(device->physical) || !mig_is_on(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    found = mig_list(device->physical, all);
    for (unsigned int index = 0; index < found; index++) {
        if (all[index].id == id) {
            *instance = fake_nvml_gpu_instance(all[index].serial);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlGpuInstanceGetInfo, nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info)
{
    struct mig_gpu_instance found;
    nvmlReturn_t result = fake_nvml_find(instance, &found);

    if (result != NVML_SUCCESS || !info)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlGpuInstanceInfo_t){fake_nvml_handle(found.gpu), found.id, found.profile_id, {found.span.start, found.span.size}};
    return NVML_SUCCESS;
}
