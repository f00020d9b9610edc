/*
 * Oversubscription: managed memory in the place of device memory that the card does not have.
 */
#ifndef HAMI_SUBSTITUTE_H
#define HAMI_SUBSTITUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "hami/cuda_abi.h"

/*
 * With CUDA_OVERSUBSCRIBE: after the driver found no room on the current device, take managed memory that prefers it. `result` is what
 * the driver said; returns what the program is told. `*is_substitute` says which memory it is.
 */
CUresult hami_memory_substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, bool *is_substitute);

#endif
