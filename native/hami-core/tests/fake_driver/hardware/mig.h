/*
 * MIG: the mode of each GPU, and the instances that processes have created.
 *
 * All processes of the node share this. Each change is one store, so the death of a process leaves no half an instance. A GPU with
 * instances among the rows of `devices.csv` always has MIG on, and nothing can be created in it.
 * A compute instance is a device (hardware.h). Compute instances of one GPU instance share its memory in NVIDIA's hardware; here
 * each has as much as the GPU instance.
 *
 * A reset of the GPU or a load of the driver makes the pending mode the current one and removes all instances.
 * Instances are identified by serial numbers above 0, which are never reused.
 * Source: NVIDIA MIG User Guide, "Getting Started with MIG", https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
 */
#ifndef FAKE_MIG_H
#define FAKE_MIG_H

#include "hardware/hardware.h"
#include "hardware/mig_profiles.h"

enum { MIG_GPU_INSTANCES_MAX = 8 };

enum mig_result { MIG_DONE, MIG_NOT_SUPPORTED, MIG_INVALID, MIG_IN_USE, MIG_NO_ROOM, MIG_NEEDS_RESET };

struct mig_gpu_instance {
    uint64_t serial; /* 0: none */
    int gpu;
    unsigned int id;
    unsigned int profile_id;
    struct mig_span span;
};

struct mig_compute_instance {
    uint64_t serial; /* 0: none */
    uint64_t gpu_instance;
    unsigned int id;
    unsigned int kind;
    unsigned int index; /* of the MIG device in its GPU */
    struct mig_span span;
};

/* Return the model of a GPU; NULL if it has no MIG, is itself an instance, or its instances are rows of `devices.csv`. */
const struct mig_model *mig_model_of(int gpu);

bool mig_is_on(int gpu);
bool mig_is_pending(int gpu);

/*
 * Request a mode and try to change to it. Returns why that is still pending: MIG_IN_USE if a process has a context on the GPU, or on
 * models that need a reset has the driver open; MIG_NEEDS_RESET if a test says so (reading `mig-needs-reset`).
 */
enum mig_result mig_set_mode(int gpu, bool is_on);

/* Create an instance; at a span, or if it is NULL at the first that is free. */
enum mig_result mig_create(int gpu, const struct mig_profile *profile, const struct mig_span *span, uint64_t *serial);
enum mig_result mig_create_compute(uint64_t gpu_instance, const struct mig_compute_profile *profile, const struct mig_span *span,
                                   uint64_t *serial);

/* MIG_IN_USE while the GPU instance has compute instances, or a process has a context on the compute instance. */
enum mig_result mig_destroy(uint64_t gpu_instance);
enum mig_result mig_destroy_compute(uint64_t compute_instance);

/* Return how many more instances of the profile fit. */
unsigned int mig_capacity(int gpu, const struct mig_profile *profile);
unsigned int mig_compute_capacity(uint64_t gpu_instance, const struct mig_compute_profile *profile);

/* Copy an instance. Returns false if there is none. */
bool mig_find(uint64_t serial, struct mig_gpu_instance *found);
bool mig_find_compute(uint64_t serial, struct mig_compute_instance *found);

/* Copy the instances of a GPU, with room for MIG_GPU_INSTANCES_MAX, or of a GPU instance. Return how many there are. */
unsigned int mig_list(int gpu, struct mig_gpu_instance *found);
unsigned int mig_list_compute(uint64_t gpu_instance, struct mig_compute_instance *found);

/* Copy the instances that a device is. Returns false if it is a GPU or a row of `devices.csv`. */
bool mig_of_device(int device, struct mig_gpu_instance *gpu_instance, struct mig_compute_instance *compute_instance);

#endif
