/*
 * The region's file: attach it, its locks, and the devices in it. region.h owns the slots, region_limits.h the limits.
 *
 * Locks: hami_region_lock() excludes the other threads of this process and the other processes of the container. While it is held,
 * only hami_region_unlock() of these functions may be called.
 */
#ifndef HAMI_REGION_FILE_H
#define HAMI_REGION_FILE_H

#include <stdbool.h>

#include "hami/region.h"

/* The devices of this container in NVML order. `count` is 0 if NVML cannot be asked. */
struct hami_inventory {
    int count;
    char uuids[HAMI_DEVICES_MAX][HAMI_UUID_BYTES];
};

/* Called without a lock of the region, and only if the region does not know its devices yet. */
typedef void hami_take_inventory(struct hami_inventory *inventory);

/*
 * Map the region, and create or renew its file. Idempotent; safe in any thread. hami_region() is not NULL afterwards, unless no
 * memory could be mapped at all.
 */
void hami_region_attach(hami_take_inventory *take_inventory);

/*
 * Add the devices that the region does not know yet. Known devices keep their indices while other processes use the region. Returns
 * false if the lock is not free within 10 s.
 */
bool hami_region_renew_inventory(hami_take_inventory *take_inventory);

/* Wait while another process replaces the devices. Returns false if the lock is not free within 10 s. */
bool hami_region_wait_for_devices(void);

/* Return an index without a device, of which this process may have nothing; -1 if there is none. */
int hami_region_refused_device(void);

/* Return the region index of a UUID, or -1. */
int hami_region_device(const char *uuid);

/*
 * Exclude the other processes of the container, and those with newer libraries of HAMi, while memory is held for a context of a
 * device, and while one of unknown cost is made. Contexts of other devices do not wait. The kernel drops the lock when its holder
 * dies. Returns false if the lock is not free within 10 s, for example because its holder is stopped, or cannot be taken.
 */
bool hami_region_lock_contexts(int device);
void hami_region_unlock_contexts(int device);

/*
 * Lock the file. Returns false, without the lock, if it cannot be taken: within 10 s, or within 5 s to sweep it. A private region
 * has no file: the lock is between threads.
 */
bool hami_region_lock(void);
bool hami_region_lock_to_sweep(void);
bool hami_region_try_lock(void); /* does not wait for other processes */
void hami_region_unlock(void);

/* Return how many slots may be claimed, from the first on; between 0 and HAMI_SLOTS_MAX whatever the file says. */
int hami_region_count(struct hami_region *region);

/* Whether the process that claimed a slot of the region is alive, in whichever pid namespace. Reads /proc and the slot's lock. */
bool hami_slot_is_alive(struct hami_region *region, int index);

/* Forget the parent's locks. Call it in a forked child. */
void hami_region_file_forget(void);

#endif
