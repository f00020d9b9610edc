/*
 * The UUIDs of this container's devices, as NVML and CUDA list them.
 *
 * Asks the driver each time and stores nothing. CUDA's functions must be loaded.
 */
#ifndef HAMI_INVENTORY_H
#define HAMI_INVENTORY_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "region_file.h"

enum { HAMI_ORDINALS_MAX = 64 };

/* List NVML's devices in NVML's order, then those that only CUDA lists. For hami_region_attach(). */
void hami_list_devices(struct hami_inventory *inventory);

/* Return the number of CUDA ordinals, at most HAMI_ORDINALS_MAX. */
int hami_cuda_device_count(void);

/* Write the UUID of a CUDA ordinal. False, and an empty text, if CUDA does not return it. */
bool hami_cuda_uuid(CUdevice ordinal, char text[HAMI_UUID_BYTES]);

#endif
