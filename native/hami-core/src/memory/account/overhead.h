/*
 * What contexts and modules take of a device. The driver takes it without a requested size.
 *
 * If NVML lists this process, its number counts: contexts and modules are what it counts beyond the other charges. If not, a
 * context costs what the device's use rose by when it was made, at most what other contexts of the container cost; modules cost
 * nothing.
 * Before a context or module is made, its expected cost is held: for a context what others took, for a module a block. If no
 * process of the container has a context on the device or makes one, one process makes one and holds what is left, and the others
 * wait before they make theirs. The caller makes sure that a process makes the contexts of one device one after the other.
 * Locks: one for each device, held while NVML and the device's pools are asked, never while a context is made or destroyed. If NVML
 * does not answer one thread, others go on without the lock (patient_lock.h): what they hold stays counted until NVML is asked again.
 */
#ifndef HAMI_OVERHEAD_H
#define HAMI_OVERHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

/* How a context is made: `make` calls the driver, which returns it in `*context`. */
struct hami_context_maker {
    CUresult (*make)(const void *arguments);
    const void *arguments;
    CUcontext *context;
};

/*
 * Make a context on a region device: hold memory for it, call `make`, and charge what it took instead. Returns the driver's answer,
 * or CUDA_ERROR_OUT_OF_MEMORY without a call if it does not fit. `*is_within` is false if it took more than was held and passes the
 * limit: then destroy it and call hami_overhead_discharge().
 */
CUresult hami_overhead_make_context(int device, const struct hami_context_maker *maker, bool *is_within);

/* Discharge a context that has ended. */
void hami_overhead_discharge(CUcontext context);

/*
 * Hold whole blocks for modules and other memory of a context, and settle them after the driver's call. A load is counted as what
 * others took: NVML is asked if it was not in this second, if the estimates add up to 64 MiB, or if less than 256 MiB are left.
 */
bool hami_overhead_hold(int device, uint64_t bytes);
bool hami_overhead_settle(int device, uint64_t held);
bool hami_overhead_settle_load(int device, uint64_t held);

/* Note that this process is charged for memory that NVML may not count for it. It is not looked for by its charges any more. */
void hami_overhead_note_elsewhere(void);

/* Note that modules were loaded or unloaded: the next refresh asks NVML again. */
void hami_overhead_changed(void);

/* Ask NVML about a region device if modules changed since. Otherwise costs one load. */
void hami_overhead_refresh(int device);

/* Ask it before `bytes` are charged, if modules changed since and less than 256 MiB are left, or a second has passed. */
void hami_overhead_follow(int device, uint64_t bytes);

/*
 * Make room before a charge is refused: pools give up what they do not use, and NVML is asked again if its last answer was not
 * exact or modules changed since. Returns true if there may be more room.
 */
bool hami_overhead_make_room(int device);

/*
 * Wait before a charge is refused while another process makes the first context of a device: it holds all that is left until it
 * knows the cost. Only a process without a context there has to wait; otherwise the cost is known. Returns true if there may be more
 * room.
 */
bool hami_overhead_await_first_context(int device);

/* Ask NVML about a region device, at most once a second: code is also loaded by a kernel's first launch, which does not say so. */
void hami_overhead_refresh_if_stale(int device);

/* Forget the parent's contexts, in a forked child. */
void hami_overhead_forget(void);

#endif
