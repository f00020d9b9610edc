/*
 * What contexts and modules take of a device, which the driver takes without being asked for an amount.
 *
 * Where NVML names this process, its own number stands: contexts and modules are what NVML counts beyond what was charged otherwise.
 * The process is recognised as the one that appears in the device's list with its first context, so no pid of the host need be known.
 * Where that cannot be, a context costs what the card's free memory fell by when it was made, at most what the container's other
 * contexts cost; modules then cost nothing. A context that passes the limit is ended again and refused.
 * Locks: one mutex, held while NVML is asked and pools tell what they have, never while a context is made or ended.
 */
#ifndef HAMI_MEMORY_CONTEXT_H
#define HAMI_MEMORY_CONTEXT_H

/* Ask NVML again about a region device if modules came or went since. Costs a load when not. */
void hami_context_refresh(int device);

/* Ask NVML again about a region device, at most once a second: code is also loaded at a kernel's first launch. */
void hami_context_refresh_if_stale(int device);

/* Forget the parent's contexts, in a forked child. */
void hami_context_forget(void);

#endif
