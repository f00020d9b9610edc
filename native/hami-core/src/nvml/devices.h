/*
 * The region device of a CUDA ordinal, a stream or an NVML handle.
 *
 * Devices are matched by UUID, once, at the first question, which also starts this process's part in the region (hami_start()). The
 * answer is -1 if the device is unknown, or if the driver itself asks; then the hook forwards the call.
 * Locks: none is held while the driver is asked. Threads that ask for the first time at the same time all ask it, and the first
 * answer counts. Fork: call hami_devices_forget() in the child, which matches again.
 */
#ifndef HAMI_DEVICES_H
#define HAMI_DEVICES_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hami/nvml_abi.h"
#include "inventory.h"

/* Match the CUDA ordinals with the region's devices. False if this process is not under control or CUDA lists no device. */
bool hami_match_devices(void);

/* Return the region device of a CUDA ordinal. */
int hami_device_of_ordinal(CUdevice ordinal);

/* Return the number of CUDA ordinals; 0 before they are matched. */
int hami_ordinal_count(void);

/* Return the ordinal of the calling thread's current device, and its region device. */
CUdevice hami_current_ordinal(void);
int hami_current_device(void);

/* Return the ordinal of a stream's device, and its region device. */
CUdevice hami_ordinal_of_stream(CUstream stream, bool is_per_thread);
int hami_device_of_stream(CUstream stream, bool is_per_thread);

/* Return the region device of an NVML handle. */
int hami_nvml_device(nvmlDevice_t device);

void hami_devices_forget(void);

#endif
