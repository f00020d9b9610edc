/*
 * The region's file: whether it can be used, the lock on it, limits and devices in it. For region.c, which owns the slots.
 *
 * Locks: hami_region_lock() excludes the other threads of this process and the other processes of the container; nothing in here is
 * called with it held but hami_region_unlock().
 */
#ifndef HAMI_REGION_FILE_H
#define HAMI_REGION_FILE_H

#include "region.h"

/* Lock the file; false, without a lock, when it cannot be had. A private region has no file: then threads are excluded. */
bool hami_region_lock(void);
bool hami_region_try_lock(void); /* does not wait for other processes */
void hami_region_unlock(void);

/* Whether the region is this process's own because no file could be used. */
bool hami_region_is_private(void);

/* How many slots may be claimed, from the first on, whatever the file says. */
int hami_region_count(struct hami_region *region);

/* Whether the process that claimed a slot lives. Reads /proc. */
bool hami_slot_is_alive(struct hami_slot *slot);

/* Forget the parent's lock; called in a forked child. */
void hami_region_file_forget(void);

#endif
