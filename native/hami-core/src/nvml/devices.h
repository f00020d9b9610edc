/*
 * Which region device a CUDA ordinal, a stream or an NVML handle means.
 *
 * Devices are matched by UUID, once, at the first question; that question starts the process's part in the region (hami_start()).
 * Every answer is -1 when the device is not known, or when the driver itself asks: then the call goes on to the driver.
 * Locks: one mutex while ordinals are matched. Fork: the child matches anew; call hami_devices_forget() in it.
 */
#ifndef HAMI_DEVICES_H
#define HAMI_DEVICES_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hami/nvml_abi.h"
#include "inventory.h"

/* Match the CUDA ordinals with the region's devices. False when this process is not under control or CUDA lists no device. */
bool hami_match_devices(void);

/* The region device of a CUDA ordinal. */
int hami_device_of_ordinal(CUdevice ordinal);

/* How many CUDA ordinals there are; 0 before they are matched. */
int hami_ordinal_count(void);

/* The ordinal of the calling thread's current device, and its region device. */
CUdevice hami_current_ordinal(void);
int hami_current_device(void);

/* The ordinal of a stream's device, and its region device. */
CUdevice hami_ordinal_of_stream(CUstream stream, bool is_per_thread);
int hami_device_of_stream(CUstream stream, bool is_per_thread);

/* The region device of an NVML handle. */
int hami_nvml_device(nvmlDevice_t device);

void hami_devices_forget(void);

#endif
