/*
 * Compute instances: the profiles of a GPU instance, and creating, finding and destroying instances.
 */
#include <stdio.h>
#include <string.h>

#include "nvml/mig.h"

/* Return the GPU instance and its compute profile of a kind, whose ID is the same number. */
static nvmlReturn_t find(nvmlGpuInstance_t handle, unsigned int kind, struct mig_gpu_instance *within,
                         const struct mig_compute_profile **profile)
{
    nvmlReturn_t result = fake_nvml_find(handle, within);

    if (result != NVML_SUCCESS || kind >= COMPUTE_INSTANCE_KINDS)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *profile = mig_compute_profile(fake_nvml_profile(within), kind);
    return *profile ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static unsigned int multiprocessors(const struct mig_gpu_instance *within, const struct mig_compute_profile *profile)
{
    return fake_nvml_profile(within)->multiprocessors * profile->slices / fake_nvml_profile(within)->slices;
}

/* Profiles */

static nvmlReturn_t write_profile(nvmlGpuInstance_t handle, unsigned int kind, unsigned int engines,
                                  nvmlComputeInstanceProfileInfo_t *info, char *name, size_t size)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX];
    const struct mig_compute_profile *profile;
    const struct mig_profile *outer;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find(handle, kind, &within, &profile);

    if (result != NVML_SUCCESS || engines != NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    outer = fake_nvml_profile(&within);
    *info = (nvmlComputeInstanceProfileInfo_t){.id = profile->kind,
                                               .sliceCount = profile->slices,
                                               .instanceCount = mig_compute_spans(outer, profile, spans),
                                               .multiprocessorCount = multiprocessors(&within, profile),
                                               .sharedCopyEngineCount = outer->copy_engines,
                                               .sharedDecoderCount = outer->decoders,
                                               .sharedEncoderCount = outer->encoders,
                                               .sharedJpegCount = outer->jpegs,
                                               .sharedOfaCount = outer->ofas};
    if (profile->slices == outer->slices)
        snprintf(name, size, "MIG %s", outer->name);
    else
        snprintf(name, size, "MIG %s.%s", profile->name, outer->name);
    return NVML_SUCCESS;
}

API(nvmlGpuInstanceGetComputeInstanceProfileInfo, nvmlGpuInstance_t instance, unsigned int kind, unsigned int engines,
    nvmlComputeInstanceProfileInfo_t *info)
{
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];

    return info ? write_profile(instance, kind, engines, info, name, sizeof(name)) : NVML_ERROR_INVALID_ARGUMENT;
}

/* The versions have the same fields between the version and the name; the newer one has one more after it. */
API(nvmlGpuInstanceGetComputeInstanceProfileInfoV, nvmlGpuInstance_t instance, unsigned int kind, unsigned int engines,
    nvmlComputeInstanceProfileInfo_v2_t *info)
{
    nvmlComputeInstanceProfileInfo_t plain;
    char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    nvmlReturn_t result;

    if (!info || (info->version != nvmlComputeInstanceProfileInfo_v2 && info->version != nvmlComputeInstanceProfileInfo_v3))
        return NVML_ERROR_INVALID_ARGUMENT;
    result = write_profile(instance, kind, engines, &plain, name, sizeof(name));
    if (result != NVML_SUCCESS)
        return result;
    memcpy(&info->id, &plain, sizeof(plain));
    memcpy(info->name, name, sizeof(name));
    if (info->version == nvmlComputeInstanceProfileInfo_v3)
        ((nvmlComputeInstanceProfileInfo_v3_t *)info)->capabilities = 0;
    return NVML_SUCCESS;
}

API(nvmlGpuInstanceGetComputeInstancePossiblePlacements, nvmlGpuInstance_t instance, unsigned int id,
    nvmlComputeInstancePlacement_t *placements, unsigned int *count)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX];
    const struct mig_compute_profile *profile;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find(instance, id, &within, &profile);

    if (result != NVML_SUCCESS || !count)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *count = mig_compute_spans(fake_nvml_profile(&within), profile, spans);
    for (unsigned int index = 0; placements && index < *count; index++)
        placements[index] = (nvmlComputeInstancePlacement_t){spans[index].start, spans[index].size};
    return NVML_SUCCESS;
}

API(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, nvmlGpuInstance_t instance, unsigned int id, unsigned int *count)
{
    const struct mig_compute_profile *profile;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find(instance, id, &within, &profile);

    if (result != NVML_SUCCESS || !count)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *count = mig_compute_capacity(within.serial, profile);
    return NVML_SUCCESS;
}

/* Instances */

static nvmlComputeInstance_t handle_of(uint64_t serial)
{
    return (nvmlComputeInstance_t)fake_nvml_instance(serial);
}

static nvmlReturn_t create(nvmlGpuInstance_t handle, unsigned int id, const struct mig_span *span, nvmlComputeInstance_t *instance)
{
    const struct mig_compute_profile *profile;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find(handle, id, &within, &profile);
    uint64_t serial;

    if (result == NVML_SUCCESS)
        result = instance ? fake_nvml_check_root() : NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = fake_nvml_mig_result(mig_create_compute(within.serial, profile, span, &serial));
    if (result == NVML_SUCCESS)
        *instance = handle_of(serial);
    return result;
}

API(nvmlGpuInstanceCreateComputeInstance, nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *created)
{
    return create(instance, id, NULL, created);
}

API(nvmlGpuInstanceCreateComputeInstanceWithPlacement, nvmlGpuInstance_t instance, unsigned int id,
    const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *created)
{
    if (!placement)
        return NVML_ERROR_INVALID_ARGUMENT;
    return create(instance, id, &(struct mig_span){placement->start, placement->size}, created);
}

/* Find the instance of a handle, and the GPU instance that it is in. */
static nvmlReturn_t find_instance(nvmlComputeInstance_t handle, struct mig_compute_instance *found, struct mig_gpu_instance *within)
{
    if (!fake_nvml_is_open())
        return NVML_ERROR_UNINITIALIZED;
    if (!handle || !mig_find_compute(((struct fake_instance *)handle)->serial, found))
        return NVML_ERROR_INVALID_ARGUMENT;
    return fake_nvml_find(fake_nvml_gpu_instance(found->gpu_instance), within);
}

API(nvmlComputeInstanceDestroy, nvmlComputeInstance_t instance)
{
    struct mig_compute_instance found;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find_instance(instance, &found, &within);

    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    return result == NVML_SUCCESS ? fake_nvml_mig_result(mig_destroy_compute(found.serial)) : result;
}

API(nvmlGpuInstanceGetComputeInstances, nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *instances,
    unsigned int *count)
{
    struct mig_compute_instance all[MIG_PLACEMENTS_MAX];
    const struct mig_compute_profile *profile;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find(instance, id, &within, &profile);
    unsigned int found;

    if (result != NVML_SUCCESS || !instances || !count)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    found = mig_list_compute(within.serial, all);
    *count = 0;
    for (unsigned int index = 0; index < found; index++)
        if (all[index].kind == id)
            instances[(*count)++] = handle_of(all[index].serial);
    return NVML_SUCCESS;
}

API(nvmlGpuInstanceGetComputeInstanceById, nvmlGpuInstance_t instance, unsigned int id, nvmlComputeInstance_t *wanted)
{
    struct mig_compute_instance all[MIG_PLACEMENTS_MAX];
    struct mig_gpu_instance within;
    nvmlReturn_t result = fake_nvml_find(instance, &within);
    unsigned int found;

    if (result != NVML_SUCCESS || !wanted)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    found = mig_list_compute(within.serial, all);
    for (unsigned int index = 0; index < found; index++) {
        if (all[index].id == id) {
            *wanted = handle_of(all[index].serial);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlComputeInstanceGetInfo_v2, nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    struct mig_compute_instance found;
    struct mig_gpu_instance within;
    nvmlReturn_t result = find_instance(instance, &found, &within);

    if (result != NVML_SUCCESS || !info)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *info = (nvmlComputeInstanceInfo_t){fake_nvml_handle(within.gpu),
                                        fake_nvml_gpu_instance(within.serial),
                                        found.id,
                                        found.kind,
                                        {found.span.start, found.span.size}};
    return NVML_SUCCESS;
}

API(nvmlComputeInstanceGetInfo, nvmlComputeInstance_t instance, nvmlComputeInstanceInfo_t *info)
{
    return nvmlComputeInstanceGetInfo_v2(instance, info);
}
