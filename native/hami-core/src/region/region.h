/*
 * This process's place in the region: attaching, claiming a slot, charging it, and reading what the container uses.
 *
 * Owns every write this library makes to the region. Knows nothing of CUDA: devices are indices into the region, in NVML order.
 *
 * Locks: whoever makes, renews or sweeps the file holds an open-file-description lock on its bytes [0, size), which the kernel drops when
 * its holder dies and which excludes HAMi's own lockf(). Joining a file that is as it should be, claiming a slot, giving it back,
 * charging and reading wait for no lock between processes.
 * Slots: claimed in place by an exchange of the pid, never moved. A process that finds all of them taken by the living says so once and
 * keeps its account to itself: it sees what the others use and they do not see its own.
 * Fork: the child keeps the mapping, owns no slot and claims its own when it first needs one; call hami_region_forget() in it.
 * Failure: a file that cannot be used (unreadable, other layout with live owners) is said once, and a private region with the limits
 * of the environment takes its place. Nothing here ends the process. What cannot be survived without a signal handler is another
 * process that cuts the mapped file short.
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

/*
 * Start this process's part in the region at its first call under control. False: forward everything. Cheap after the first call.
 * process.c supplies it: how a process starts is known above. A constant: hooks are called before constructors have run.
 */
extern bool (*const hami_start)(void);

/* The mapped region, or NULL before hami_region_attach(). */
struct hami_region *hami_region(void);

/* This process's slot, claiming one if need be; one of its own when the region is full. NULL only before hami_region_attach(). */
struct hami_slot *hami_region_slot(void);

/* The slots that may be claimed: `index` from 0 until NULL. This process's own comes last when it is not in the region. */
struct hami_slot *hami_region_slot_at(int index);

/* Add the devices that the region does not know yet; those that it knows keep their places while anybody else lives by them. */
void hami_region_renew_inventory(hami_take_inventory *take_inventory);

/* The region index of a UUID, or -1. */
int hami_region_device(const char *uuid);

/* Bytes of a device this container may use; 0 for no limit, and for a device of -1. */
uint64_t hami_region_limit(int device);

/* Bytes the container uses of a device: the sum over all claimed slots. */
uint64_t hami_region_used(int device);

/* Bytes this process itself uses of a device, without contexts and modules. */
uint64_t hami_region_own_data(int device);

/*
 * Add `bytes` to this process's use of a device if the container stays within its limit.
 * Returns false, and charges nothing, when it would not; slots of dead processes are swept before that is said.
 */
bool hami_region_charge(int device, uint64_t bytes);
void hami_region_discharge(int device, uint64_t bytes);

/* Add what the driver has taken already: nothing is refused. */
void hami_region_charge_anyway(int device, uint64_t bytes);

/*
 * Hold `bytes` for a context or module that is about to be made; false as hami_region_charge(). What was held ends with
 * hami_region_state_overhead(), or with hami_region_drop_hold() when nothing was made.
 */
bool hami_region_hold(int device, uint64_t bytes);
void hami_region_drop_hold(int device, uint64_t bytes);

/* Hold what is left within the limit, `most` bytes at most; returns how much that was. */
uint64_t hami_region_hold_rest(int device, uint64_t most);

/* What a process's contexts and modules take of a device. */
struct hami_overhead {
    uint64_t contexts; /* how many */
    uint64_t context_bytes, module_bytes;
};

/* State what this process's take, in place of what was held for them; nothing is refused. */
void hami_region_state_overhead(int device, const struct hami_overhead *overhead, uint64_t held);

/* Free the slots of dead processes. `_if_stale` does so at most once a second. */
void hami_region_sweep(void);
void hami_region_sweep_if_stale(void);

/* The pid by which NVML knows this process, once that is found out. */
void hami_region_state_host_pid(int32_t pid);

/* What a context takes: the least that any process's in the container does. False when none has a context. */
bool hami_region_least_context(int device, uint64_t *bytes);

/*
 * Give the slot back; called when the process ends. What the driver has not been given back by then is counted until the process is
 * gone.
 */
void hami_region_release(void);

/*
 * Be alone among the processes of the container, and those of newer libraries of HAMi, while a context is made whose cost nobody knows.
 * The kernel drops the lock when its holder dies; false when it is not to be had within 5 s, as from a process that was stopped.
 */
bool hami_region_lock_contexts(void);
void hami_region_unlock_contexts(void);

/* Forget the parent's slot and lock; called in a forked child. Async-signal-safe. */
void hami_region_forget(void);

#endif
