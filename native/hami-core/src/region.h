/*
 * This process's place in the region: attaching, claiming a slot, charging it, and reading what the container uses.
 *
 * Owns every write this library makes to the region. Knows nothing of CUDA: devices are indices into the region, in NVML order.
 *
 * Locks: attaching, claiming, releasing and sweeping hold an open-file-description lock on the file's bytes [0, size), which the kernel
 * drops when its holder dies and which excludes HAMi's own lockf(). Charging and reading take no lock at all.
 * Fork: the child keeps the mapping, owns no slot and claims its own when it first needs one; call hami_region_forget() in it.
 * Failure: a file that cannot be used (unreadable, other layout with live owners, 1024 live processes) is said once, and a private
 * region with the limits of the environment takes its place. Nothing here ends the process.
 */
#ifndef HAMI_REGION_IO_H
#define HAMI_REGION_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/* The devices a region is about, in NVML order; `count` may be 0 when NVML cannot be asked. */
struct hami_inventory {
    int count;
    char uuids[HAMI_DEVICES_MAX][HAMI_UUID_BYTES];
};

/* Called under the lock and only when the region does not know its devices yet. */
typedef void hami_take_inventory(struct hami_inventory *inventory);

/* Map the region, creating or renewing its file. Idempotent; safe in any thread. Never NULL afterwards from hami_region(). */
void hami_region_attach(hami_take_inventory *take_inventory);

/* The mapped region, or NULL before hami_region_attach(). */
struct hami_region *hami_region(void);

/* This process's slot, claiming one if need be; NULL when the region is full of live processes. */
struct hami_slot *hami_region_slot(void);

/* Write the inventory again, because a device appeared that the region does not know. */
void hami_region_renew_inventory(hami_take_inventory *take_inventory);

/* The region index of a UUID, or -1. */
int hami_region_device(const char *uuid);

/* Bytes the container uses of a device: the sum over all claimed slots. */
uint64_t hami_region_used(int device);

/*
 * Add `bytes` to this process's use of a device if the container stays within its limit.
 * Returns false, and charges nothing, when it would not; slots of dead processes are swept before that is said.
 */
bool hami_region_charge(int device, uint64_t bytes);
void hami_region_discharge(int device, uint64_t bytes);

/* Free the slots of dead processes. `_if_stale` does so at most once a second. */
void hami_region_sweep(void);
void hami_region_sweep_if_stale(void);

/* Give the slot back; called when the process ends. */
void hami_region_release(void);

/* Forget the parent's slot and lock; called in a forked child. Async-signal-safe. */
void hami_region_forget(void);

#endif
