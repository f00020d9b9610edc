/*
 * Which of the node's devices a process sees, and in which order.
 *
 * Owns the two filters: NVIDIA_VISIBLE_DEVICES, which the container runtime applies by adding device files, and
 * CUDA_VISIBLE_DEVICES, which libcuda applies after it. NVML sees only the first. Both are read once.
 */
#ifndef FAKE_VISIBLE_H
#define FAKE_VISIBLE_H

#include "hardware/hardware.h"

struct visible {
    int count;
    int device[HW_DEVICES_MAX]; /* physical index of each visible ordinal */
    int instance_count;
    int instance[HW_DEVICES_MAX]; /* the MIG instances in the container, in the node's order */
};

/*
 * What the container sees. Unset or `all` is everything; empty or `none` is nothing; otherwise a list of UUIDs or indices.
 * A MIG instance includes its GPU, and a GPU all its instances. For `void` the device files decide, see README.md.
 */
void visible_to_container(struct visible *visible);

/* Whether the container sees a device now. An instance that was created later is seen if its GPU is listed. */
bool visible_shows(int row);

/*
 * What libcuda sees: a list of indices of the container's GPUs, of UUIDs or beginnings of one UUID, and of MIG instances by UUID or
 * as MIG-<GPU UUID>/<GPU instance>/<compute instance>. It ends at the first entry that names no device. If a device is listed
 * twice, none is visible. A GPU in MIG mode stands for its first instance, and if there is an instance, it is the only device.
 * Source: CUDA Programming Guide, "CUDA Environment Variables"; NVIDIA MIG User Guide, "CUDA Device Enumeration".
 */
void visible_to_cuda(struct visible *visible);

#endif
