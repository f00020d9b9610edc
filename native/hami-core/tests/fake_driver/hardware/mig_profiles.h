/*
 * The MIG profiles of the models that have any: what a GPU instance and a compute instance may be, and where they fit.
 *
 * Source: NVIDIA MIG User Guide, "Supported MIG Profiles" and "Getting Started with MIG" (nvidia-smi mig -lgip and -lgipp),
 * https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
 */
#ifndef FAKE_MIG_PROFILES_H
#define FAKE_MIG_PROFILES_H

#include <stdbool.h>
#include <stdint.h>

enum { MIG_PROFILES_MAX = 8, MIG_PLACEMENTS_MAX = 8 };

/* Slices of memory for a GPU instance, of its compute slices for a compute instance. */
struct mig_span {
    unsigned int start, size;
};

struct mig_profile {
    const char *name;  /* 1g.5gb */
    unsigned int kind; /* NVML_GPU_INSTANCE_PROFILE_* */
    unsigned int id;
    unsigned int slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    uint64_t memory_mib;
    unsigned int size, starts; /* memory slices of an instance, and a bit for each slice where one may start */
};

struct mig_model {
    const char *name;  /* part of the device's name */
    const char *other; /* another part of it, or NULL */
    bool needs_reset;  /* a change of the mode resets the GPU, and it survives a load of the driver */
    struct mig_profile profiles[MIG_PROFILES_MAX];
};

/* A compute instance is some of its GPU instance's slices. */
struct mig_compute_profile {
    const char *name;  /* 1c */
    unsigned int kind; /* NVML_COMPUTE_INSTANCE_PROFILE_*; the ID is the same number */
    unsigned int slices;
};

/* Return the model of that device name, or NULL if it has no MIG. */
const struct mig_model *mig_model(const char *device_name);

/* Return a model's profile by its kind or ID, or NULL. */
const struct mig_profile *mig_profile_of_kind(const struct mig_model *model, unsigned int kind);
const struct mig_profile *mig_profile_of_id(const struct mig_model *model, unsigned int id);

/* List the spans where an instance may be, with room for MIG_PLACEMENTS_MAX. Returns how many. */
unsigned int mig_spans(const struct mig_profile *profile, struct mig_span *spans);

/* The same for compute instances in a GPU instance of a profile. NULL if the GPU instance cannot have that kind. */
const struct mig_compute_profile *mig_compute_profile(const struct mig_profile *within, unsigned int kind);
unsigned int mig_compute_spans(const struct mig_profile *within, const struct mig_compute_profile *profile, struct mig_span *spans);

#endif
