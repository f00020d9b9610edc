/*
 * Oversubscription: managed memory instead of device memory.
 */
#ifndef HAMI_SUBSTITUTE_H
#define HAMI_SUBSTITUTE_H

#include <stdbool.h>
#include <stddef.h>

#include "hami/cuda_abi.h"

/*
 * With CUDA_OVERSUBSCRIBE, after the driver found no room on the current device, allocate managed memory that prefers it. `result`
 * is the driver's answer. Returns what the program is told. `*is_substitute` is whether managed memory was allocated.
 */
CUresult hami_memory_substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, bool *is_substitute);

#endif
