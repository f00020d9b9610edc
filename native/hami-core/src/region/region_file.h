/*
 * The region's file: whether it can be used, its lock, and the limits and devices in it. For region.c, which owns the slots.
 *
 * Locks: hami_region_lock() excludes the other threads of this process and the other processes of the container. While it is held,
 * only hami_region_unlock() of these functions may be called.
 */
#ifndef HAMI_REGION_FILE_H
#define HAMI_REGION_FILE_H

#include "region.h"

/*
 * Lock the file. Returns false, without the lock, if it cannot be taken: within 10 s, or within 5 s to sweep it. A private region
 * has no file: the lock is between threads.
 */
bool hami_region_lock(void);
bool hami_region_lock_to_sweep(void);
bool hami_region_try_lock(void); /* does not wait for other processes */
void hami_region_unlock(void);

/* Whether the region is private to this process because no file could be used. */
bool hami_region_is_private(void);

/* Return how many slots may be claimed, from the first on; between 0 and HAMI_SLOTS_MAX whatever the file says. */
int hami_region_count(struct hami_region *region);

/* Whether the process that claimed a slot of the region is alive, in whichever pid namespace. Reads /proc and the slot's lock. */
bool hami_slot_is_alive(struct hami_region *region, int index);

/* Forget the parent's locks. Call it in a forked child. */
void hami_region_file_forget(void);

#endif
