/*
 * This process's slot in the region: claim it, charge it, and read what the container uses.
 *
 * Knows nothing of CUDA: devices are indices into the region, in NVML order. region_file.h maps the region, region_limits.h has the
 * limits in it.
 *
 * Locks: a process that creates, renews or sweeps the file holds an open-file-description lock on its bytes [0, size). The kernel
 * drops it when its holder dies, and it excludes HAMi's own lockf(). Attaching an up-to-date file, claiming and releasing a slot,
 * charging and reading wait for no other process.
 * Slots: claimed in place by an exchange of the pid, never moved, and locked while their process lives (slot_lock.h). If all are
 * taken by living processes, a process says so once and keeps its slot to itself: it sees what the others use, and they do not see
 * its use.
 * Fork: the child keeps the mapping, has no slot and claims one when it first needs it. Call hami_region_forget() in it.
 * Waits: for the lock, at most 10 s to attach or renew the file, and 5 s to sweep it, which is left out then. A process that cannot
 * attach or renew within that time gets no memory: it does not know what others use.
 * Failure: if the file cannot be used (unreadable, or another layout with living owners), the library says so once and uses a
 * private region with the limits of the environment. Nothing here ends the process. Only another process that truncates the mapped
 * file can: that cannot be survived without a signal handler.
 */
#ifndef HAMI_REGION_IO_H
#define HAMI_REGION_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/*
 * Start this process's part in the region at its first call under control. Returns false if the library must forward everything.
 * Cheap after the first call. process.c supplies it. It is constant, because hooks are called before this library's constructors
 * have run.
 */
extern bool (*const hami_start)(void);

/*
 * Return this process's slot, and claim one if necessary. If the region is full, the slot is private. NULL only before
 * hami_region_attach().
 */
struct hami_slot *hami_region_slot(void);

/* Return a claimable slot by `index`, from 0 until NULL. This process's own slot comes last if it is not in the region. */
struct hami_slot *hami_region_slot_at(int index);

/*
 * Claim this process's slot. Indices of devices that are read after that stay, and the limits of this process are right for them.
 * Returns false if another process replaces the devices for more than 10 s.
 */
bool hami_region_join(void);

/* Return how many bytes of a device the container uses: the sum over all claimed slots. */
uint64_t hami_region_used(int device);

/* Return how many bytes of a device this process uses, without contexts and modules. */
uint64_t hami_region_own_data(int device);

/*
 * Add `bytes` to this process's use of a device if the container stays within its limit. Otherwise returns false and charges
 * nothing, after sweeping the slots of dead processes.
 */
bool hami_region_charge(int device, uint64_t bytes);
void hami_region_discharge(int device, uint64_t bytes);

/* Add what the driver has taken already. Never refused. */
void hami_region_charge_anyway(int device, uint64_t bytes);

/*
 * Hold `bytes` for a context or module that is about to be made; false as for hami_region_charge(). hami_region_store_overhead()
 * ends the hold, or hami_region_drop_hold() if nothing was made.
 */
bool hami_region_hold(int device, uint64_t bytes);
void hami_region_drop_hold(int device, uint64_t bytes);

/* Hold what is left within the limit, at most `most` bytes. Returns how much. */
uint64_t hami_region_hold_rest(int device, uint64_t most);

/* What the contexts and modules of a process take of a device. */
struct hami_overhead {
    uint64_t contexts; /* how many */
    uint64_t context_bytes, module_bytes;
};

/* Store what this process's contexts and modules take, in place of `held`. Never refused. */
void hami_region_store_overhead(int device, const struct hami_overhead *overhead, uint64_t held);

/* Free the slots of dead processes; `_if_stale` at most once a second. */
void hami_region_sweep(void);
void hami_region_sweep_if_stale(void);

/*
 * Record for the monitor what the container uses of a device, after what was charged has really been taken. What is only held does
 * not count.
 */
void hami_region_record_use(int device);

/* Record that a launch sleeps until it may use a device: around each sleep. `is_first` before the first sleep of a launch. */
void hami_region_begin_wait(int device, bool is_first);
void hami_region_end_wait(int device, uint64_t slept_ns);

/* Store the pid under which NVML lists this process. */
void hami_region_store_host_pid(int32_t pid);

/* Release the slot when the process ends. What the driver still holds then counts until the process is gone. */
void hami_region_release(void);

/*
 * The same if other threads still run: they keep the slot, because they may charge it at this moment. The next process that needs a
 * slot empties it when this one is gone.
 */
void hami_region_release_later(void);

/* Forget the parent's slot and locks. Call it in a forked child; async-signal-safe. */
void hami_region_forget(void);

#endif
