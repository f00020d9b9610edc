/*
 * What the sensors and counters of a device read, if a test says so.
 */
#ifndef FAKE_READINGS_H
#define FAKE_READINGS_H

#include <stdbool.h>
#include <stdint.h>

/* Return the number that a test gave to a reading of a device, or `otherwise`. A MIG instance reads as its GPU. */
int64_t reading(int device, const char *name, int64_t otherwise);

/* Whether the device is older than Ampere: it retires pages, where newer ones remap rows. */
bool reading_is_of_old_device(int device);

#endif
