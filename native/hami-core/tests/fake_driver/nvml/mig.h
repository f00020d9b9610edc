/*
 * What the MIG parts of the fake NVML share.
 */
#ifndef NVML_MIG_H
#define NVML_MIG_H

#include "hardware/mig.h"
#include "nvml/fake.h"

/* How many kinds of profiles the newest NVML knows; NVML_GPU_INSTANCE_PROFILE_COUNT and NVML_COMPUTE_INSTANCE_PROFILE_COUNT grow. */
enum { GPU_INSTANCE_KINDS = 0x12, COMPUTE_INSTANCE_KINDS = 0x9 };

/* What the handle of either kind of instance points to. It stays valid while there is an instance of that serial number. */
struct fake_instance {
    uint64_t serial;
    struct fake_instance *next;
};

/* Return the handle of an instance. Handles are never freed. */
struct fake_instance *fake_nvml_instance(uint64_t serial);
nvmlGpuInstance_t fake_nvml_gpu_instance(uint64_t serial);

/* Find the instance of a handle. Returns NVML_ERROR_INVALID_ARGUMENT if there is none. */
nvmlReturn_t fake_nvml_find(nvmlGpuInstance_t handle, struct mig_gpu_instance *found);

/* Return the profile of a GPU instance. */
const struct mig_profile *fake_nvml_profile(const struct mig_gpu_instance *instance);

/* What MIG's results are in NVML. */
nvmlReturn_t fake_nvml_mig_result(enum mig_result result);

/* NVML_SUCCESS for root of the node, who alone may change MIG and set limits. */
nvmlReturn_t fake_nvml_check_root(void);

#endif
