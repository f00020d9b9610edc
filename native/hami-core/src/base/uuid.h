/*
 * UUIDs of devices, as NVML, CUDA and the device plugin write them.
 */
#ifndef HAMI_UUID_H
#define HAMI_UUID_H

#include <stdbool.h>

/* Whether two UUIDs name the same device. Their prefixes may differ: NVML writes GPU- or MIG-, CUDA has none. */
bool hami_is_same_uuid(const char *first, const char *second);

#endif
