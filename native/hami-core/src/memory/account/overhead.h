/*
 * What contexts and modules take of a device. The driver takes it without a requested size.
 *
 * If NVML lists this process, its number counts: contexts and modules are what it counts beyond the other charges. Calls that change
 * both are held off meanwhile (changes.h), so it is exact beside other threads. Only if such a call lasts long, or a context is being
 * made, nothing is learned: then what was held stays counted. If NVML does not list it, a context costs what context_cost.h
 * estimates, and modules cost nothing.
 * Before a context or module is made, its expected cost is held: for a module a block, for a context what context_making.h says.
 * Locks: one for each device, held while NVML and the device's pools are asked, never while a context is made or destroyed. If NVML
 * does not answer one thread, others go on without the lock (patient_lock.h): what they hold stays counted until NVML is asked again.
 */
#ifndef HAMI_OVERHEAD_H
#define HAMI_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "candidates.h"

/*
 * Hold whole blocks for modules and other memory of a context, and settle them after the driver's call. They return false if the limit
 * is passed. A load is counted as what others took: NVML is asked if it was not in this second, if the estimates add up to 64 MiB, or if
 * less than 256 MiB are left.
 */
bool hami_overhead_hold(int device, uint64_t bytes);
bool hami_overhead_hold_now(int device, uint64_t bytes); /* without asking NVML first */
bool hami_overhead_settle(int device, uint64_t held, uint64_t loads); /* how many modules were loaded */

/* The state before a context was made. */
struct hami_before_context {
    struct hami_nvml_processes processes; /* of the device; more than HAMI_NVML_PROCESSES_MAX if unknown */
    uint64_t device_used, held;
    bool is_measured; /* what contexts and modules took */
};

/* Read all of it but `held`. */
void hami_overhead_look_before_context(int device, struct hami_before_context *before);

/*
 * Count a context that was made, in place of what was held for it. Returns true unless it took more. Pair with
 * hami_context_begin_making().
 */
bool hami_overhead_add_context(int device, const struct hami_before_context *before);

/* Count the end of a context. */
void hami_overhead_remove_context(int device);

/* Note that this process is charged for memory that NVML may not count for it. It is not looked for by its charges any more. */
void hami_overhead_note_elsewhere(void);

/* Note that modules were loaded or unloaded: the next refresh asks NVML again. */
void hami_overhead_changed(void);

/* Ask NVML about a region device if modules changed since. Otherwise costs one load. */
void hami_overhead_refresh(int device);

/* Ask it before `bytes` are charged, if modules changed since and less than 256 MiB are left, or a second has passed. */
void hami_overhead_follow(int device, uint64_t bytes);

/* Ask it at most once a second: code is also loaded by a kernel's first launch, which does not say so. */
void hami_overhead_refresh_if_stale(int device);

/*
 * Make room before a charge is refused: pools give up what they do not use, and NVML is asked again if its last answer was not
 * exact or modules changed since. Returns true if there may be more room.
 */
bool hami_overhead_make_room(int device);

/* Forget the parent's contexts, in a forked child. */
void hami_overhead_forget(void);

#endif
