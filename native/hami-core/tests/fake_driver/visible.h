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
};

/* What the container sees: unset or `all` is everything; empty, `none` or `void` nothing; else a list of UUIDs or indices. */
void visible_to_container(struct visible *visible);

/*
 * What libcuda sees: ordinals into the container's devices or UUID prefixes, in the order listed, up to the first entry that names
 * no device; a device named twice leaves none. Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
 */
void visible_to_cuda(struct visible *visible);

#endif
