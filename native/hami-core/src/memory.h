/*
 * Charging this process for device memory, around the driver's own calls.
 *
 * The order is always: charge, ask the driver, give the charge back if it refuses. So several processes of a container can never
 * together be given more than their limit, and what is refused is refused with CUDA_ERROR_OUT_OF_MEMORY before the driver is asked.
 */
#ifndef HAMI_MEMORY_H
#define HAMI_MEMORY_H

#include <stddef.h>

#include "charges.h"
#include "hami/cuda_abi.h"

/*
 * Charge for `bytes` on a region device. Sizes round up to the driver's allocation unit of 512 bytes.
 * CUDA_ERROR_OUT_OF_MEMORY when the container's limit would be passed; `*charged` is what to give back.
 */
CUresult hami_memory_charge(int device, size_t bytes, uint64_t *charged);

/* Give a charge back. */
void hami_memory_discharge(const struct hami_charge *charge);

/* Remember a charge under the driver's key; false, with the charge given back, when there is no memory to remember it. */
bool hami_memory_remember(struct hami_charges *charges, struct hami_charge charge);

#endif
