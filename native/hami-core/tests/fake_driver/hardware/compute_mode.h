/*
 * Whom a GPU lets in: every program, one process, or none. Set through NVML by root, or by a test's `compute-mode`, which wins.
 *
 * In EXCLUSIVE_PROCESS a GPU has the contexts of one process. A server of MPS is that process from its start, and its clients are
 * no others.
 */
#ifndef FAKE_COMPUTE_MODE_H
#define FAKE_COMPUTE_MODE_H

#include <stdbool.h>

/* nvmlComputeMode_t */
enum hw_compute_mode { HW_COMPUTE_DEFAULT = 0, HW_COMPUTE_PROHIBITED = 2, HW_COMPUTE_EXCLUSIVE_PROCESS = 3 };

enum hw_compute_mode hw_compute_mode(int device);
void hw_compute_mode_set(int device, enum hw_compute_mode mode);

/* Serve clients of MPS on a device, for as long as this process lives. Returns false if the node is full. */
bool hw_compute_serve(int device);

/* Whether this process may make a context on a device. */
bool hw_compute_is_open(int device, bool is_client);

#endif
