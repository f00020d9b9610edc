/*
 * Which of the node's devices a process sees, and in which order.
 *
 * Owns the two filters: NVIDIA_VISIBLE_DEVICES, which the container runtime applies by injecting device files, and
 * CUDA_VISIBLE_DEVICES, which libcuda applies on top. NVML sees the first only. Both are read once.
 */
#ifndef FAKE_VISIBLE_H
#define FAKE_VISIBLE_H

#include "hardware.h"

struct visible {
    int count;
    int device[HW_DEVICES_MAX]; /* physical index of each visible ordinal */
    int instance_count;
    int instance[HW_DEVICES_MAX]; /* of the MIG instances in the container, in the order of the node */
};

/*
 * What the container sees: unset or `all` is everything; empty, `none` or `void` nothing; else a list of UUIDs or indices. A MIG
 * instance comes with its GPU, a GPU with all its instances.
 */
void visible_to_container(struct visible *visible);

/*
 * What libcuda sees: indices of the container's GPUs, UUIDs or beginnings that only one of them has, and MIG instances by UUID or as
 * MIG-<GPU UUID>/<GPU instance>/<compute instance>, in the order listed, up to the first entry that names no device; a device named
 * twice leaves none. A GPU in MIG mode stands for its first instance, and where there is an instance it is the only device.
 * Source: CUDA Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Device Enumeration".
 */
void visible_to_cuda(struct visible *visible);

#endif
