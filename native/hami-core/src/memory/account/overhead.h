/*
 * What contexts and modules take of a device, which the driver takes without being asked for an amount.
 *
 * Where NVML names this process, its own number stands: contexts and modules are what NVML counts beyond what was charged otherwise.
 * Where it does not, a context costs what the card's use rose by when it was made, at most what the container's other contexts cost;
 * modules then cost nothing.
 * Before one is made, what it is expected to take is held of the limit: for a context what others took, for a module a block. A context
 * whose cost nobody in the container knows is made by one process at a time, which holds what is left.
 * Of one device's contexts a process makes one after the other: the caller sees to it.
 * Locks: one mutex, held while NVML is asked and pools tell what they have, never while a context is made or ended.
 */
#ifndef HAMI_OVERHEAD_H
#define HAMI_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

/* How a context is made: `make` is the driver's call, which leaves it in `*context`. */
struct hami_context_maker {
    CUresult (*make)(const void *arguments);
    const void *arguments;
    CUcontext *context;
};

/*
 * Make a context on a region device: hold memory for it, call `make`, and charge what it took in place of what was held. Returns the
 * driver's answer, or CUDA_ERROR_OUT_OF_MEMORY without asking when it does not fit. `*is_within` is false when it took more than was
 * held and passes the limit: then end the context and call hami_overhead_discharge().
 */
CUresult hami_overhead_make_context(int device, const struct hami_context_maker *maker, bool *is_within);

/* Forget a context that is gone. */
void hami_overhead_discharge(CUcontext context);

/* The same for code, and for what else a context sets aside: hold whole blocks, and settle them when the driver has taken some. */
bool hami_overhead_hold(int device, uint64_t bytes);
bool hami_overhead_settle(int device, uint64_t held);

/* Modules came or went: ask NVML again at the next look. */
void hami_overhead_changed(void);

/* Ask NVML again about a region device if modules came or went since. Costs a load when not. */
void hami_overhead_refresh(int device);

/* Before something is refused: make pools give up what they keep unused, and ask NVML again if its last answer was no good. */
bool hami_overhead_make_room(int device);

/* Ask NVML again about a region device, at most once a second: code is also loaded at a kernel's first launch. */
void hami_overhead_refresh_if_stale(int device);

/* Forget the parent's contexts, in a forked child. */
void hami_overhead_forget(void);

#endif
