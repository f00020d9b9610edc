/*
 * The part of NVML's binary interface that only the fake driver uses.
 *
 * Declares names, numbers and layouts only, in the form of hami/nvml_abi.h; tests/abi compares both with NVIDIA's headers.
 * Source: NVML API reference, https://docs.nvidia.com/deploy/nvml-api.
 */
#ifndef FAKE_NVML_ABI_H
#define FAKE_NVML_ABI_H

#include "hami/nvml_abi.h"

#define NVML_ERROR_NO_PERMISSION ((nvmlReturn_t)4)
#define NVML_ERROR_RESET_REQUIRED ((nvmlReturn_t)16)
#define NVML_ERROR_LIB_RM_VERSION_MISMATCH ((nvmlReturn_t)18)
#define NVML_ERROR_IN_USE ((nvmlReturn_t)19)
#define NVML_ERROR_INSUFFICIENT_RESOURCES ((nvmlReturn_t)23)

#endif
