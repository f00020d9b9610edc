/*
 * Which of the region's devices NVML speaks of.
 */
#ifndef HAMI_NVML_VIEW_H
#define HAMI_NVML_VIEW_H

#include "hami/nvml_abi.h"

/* The region index of an NVML device, or -1 to leave the driver's answer alone. */
int hami_nvml_device(nvmlDevice_t device);

#endif
