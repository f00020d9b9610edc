/*
 * The devices of this container by UUID, as NVML and CUDA list them.
 *
 * Asks the driver each time; keeps nothing. CUDA's functions must have been loaded.
 */
#ifndef HAMI_INVENTORY_H
#define HAMI_INVENTORY_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "region.h"

enum { HAMI_ORDINALS_MAX = 64 };

/* List NVML's devices in NVML's order, which is the region's; then those that only CUDA sees. For hami_region_attach(). */
void hami_list_devices(struct hami_inventory *inventory);

/* How many CUDA ordinals there are, HAMI_ORDINALS_MAX at most. */
int hami_cuda_device_count(void);

/* Write the UUID of a CUDA ordinal. False, and an empty text, when CUDA does not say. */
bool hami_cuda_uuid(CUdevice ordinal, char text[HAMI_UUID_BYTES]);

/* Whether two UUIDs name the same device: NVML writes GPU- or MIG- before one, CUDA's have GPU- always. */
bool hami_is_same_uuid(const char *first, const char *second);

#endif
