/*
 * What contexts and modules take of a device, which the driver takes without being asked for an amount.
 *
 * Where NVML names this process, its own number stands: contexts and modules are what NVML counts beyond what was charged otherwise.
 * Where it does not, a context costs what the card's use rose by when it was made, at most what the container's other contexts cost;
 * modules then cost nothing.
 * Locks: one mutex, held while NVML is asked and pools tell what they have, never while a context is made or ended.
 */
#ifndef HAMI_MEMORY_OVERHEAD_H
#define HAMI_MEMORY_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"
#include "nvml_self.h"

/* What was so before a context was made. */
struct hami_overhead_before {
    struct hami_nvml_processes processes;
    uint64_t card_used;
    CUcontext current;
};

/* Look, before a context is made on a region device. False when it is known not to fit. */
bool hami_overhead_begin(int device, struct hami_overhead_before *before);

/* Charge for a context that was made. False when it passes the limit: then end it and call hami_overhead_discharge(). */
bool hami_overhead_charge(int device, const struct hami_overhead_before *before, CUcontext context);

/* Forget a context that is gone, and what was allocated in it. */
void hami_overhead_discharge(CUcontext context);

/* Modules came, or something went: ask NVML again at the next look. */
void hami_overhead_came(void);
void hami_overhead_went(void);

/* Ask NVML again about a region device if modules came or went since. Costs a load when not. */
void hami_overhead_refresh(int device);

/* Ask NVML again about a region device, at most once a second: code is also loaded at a kernel's first launch. */
void hami_overhead_refresh_if_stale(int device);

/* Whether the container is within its limit with `more` bytes; the dead and what pools keep unused do not count. */
bool hami_overhead_is_within(int device, uint64_t more);

/* Forget the parent's contexts, in a forked child. */
void hami_overhead_forget(void);

#endif
