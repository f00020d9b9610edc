/*
 * Whom a GPU lets in: every program, one process, or none. Set through NVML by root, or by a test's `compute-mode`, which wins.
 */
#ifndef FAKE_COMPUTE_MODE_H
#define FAKE_COMPUTE_MODE_H

#include <stdbool.h>

/* nvmlComputeMode_t */
enum hw_compute_mode { HW_COMPUTE_DEFAULT = 0, HW_COMPUTE_PROHIBITED = 2, HW_COMPUTE_EXCLUSIVE_PROCESS = 3 };

enum hw_compute_mode hw_compute_mode(int device);
void hw_compute_mode_set(int device, enum hw_compute_mode mode);

/* Whether this process may make a context on a device: in EXCLUSIVE_PROCESS if no other one has any. */
bool hw_compute_is_open(int device);

#endif
