/*
 * The limits in the region, and those of this process alone.
 *
 * Without a limits file the region has the environment's limits. With one it has what the file grants, nothing for a device that
 * the file does not name, and a lower limit of the environment holds for this process alone. An unusable file refuses everything
 * to this process.
 * Locks: a mutex that is held while the file is read. Fork: call hami_limits_forget() in the child.
 */
#ifndef HAMI_REGION_LIMITS_H
#define HAMI_REGION_LIMITS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/* Return how many bytes of a device this process may have the container use; 0 for no limit, and for device -1. */
uint64_t hami_region_limit(int device);

/* Return the percentage of a device's time that this process's container may use; 0 for no limit, and for device -1. */
unsigned hami_region_core_percent(int device);

/* Take over a limits file that was replaced. Looks at most once a second; hami_region_limit() does so too. */
void hami_region_follow_limits(void);

/* Return the index of a UUID in `region`, or -1. */
int hami_region_device_in(const struct hami_region *region, const char *uuid);

/* Store the limits and the priority in the region. With `is_trial` only return whether that would change anything. */
bool hami_limits_write(struct hami_region *region, bool is_trial);

/* Store the limits of those devices for which `is_new` is true. The others are in use. */
void hami_limits_write_new(struct hami_region *region, const bool is_new[HAMI_DEVICES_MAX]);

/* Store what the limits file grants, if there is one. */
void hami_limits_write_granted(struct hami_region *region);

/* Note the limits that hold for this process alone. Call it before others see the region, and when it gets devices. */
void hami_limits_read_own(const struct hami_region *region);

/* Let this process have nothing of a device from now on, or of any. */
void hami_limits_refuse(int device);
void hami_limits_refuse_all(void);

/* Forget the parent's lock. Call it in a forked child. */
void hami_limits_forget(void);

#endif
