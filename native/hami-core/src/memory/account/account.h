/*
 * Charging this process for device memory, around the driver's own calls.
 *
 * The order is always: charge, ask the driver, give the charge back if it refuses. So several processes of a container can never
 * together be given more than their limit, and what is refused is refused with CUDA_ERROR_OUT_OF_MEMORY before the driver is asked.
 *
 * What is charged is what the driver takes (blocks.h); for pools, what they grow by (pool.h). Before anything is refused, room is made
 * (overhead.h).
 */
#ifndef HAMI_ACCOUNT_H
#define HAMI_ACCOUNT_H

#include <stddef.h>

#include "blocks.h"
#include "changes.h"
#include "charges.h"
#include "hami/cuda_abi.h"
#include "hooks.h"
#include "pool.h"

/* What a charge's memory is. */
enum hami_memory_kind {
    HAMI_MEMORY_PLAIN,
    HAMI_MEMORY_POOLED,     /* costs nothing itself: its pool does */
    HAMI_MEMORY_SUBSTITUTE, /* managed memory in the place of device memory that the card does not have */
};

/*
 * Charge for an allocation on a region device. When it does not fit, what pools keep unused is given up first; then
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult hami_memory_charge(int device, size_t bytes);

/* Take memory from a pool as hami_pool_grow() does, after the same efforts. */
enum hami_growth hami_memory_grow_pool(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result);

/* Give a charge back. */
void hami_memory_discharge(const struct hami_charge *charge);

/* Remember a charge under the driver's key; false, with the charge given back, when there is no memory to remember it. */
bool hami_memory_remember(struct hami_charges *charges, struct hami_charge charge);

/*
 * End what a charge is for: `call` is the driver's, and its result the value. The charge is taken away first, so that whoever is given the
 * same address or handle in between may put his own; it comes back if the driver refuses. `taken` has the charge, or a key of 0.
 */
#define HAMI_MEMORY_END(charges, handle, taken, call)                              \
    ({                                                                             \
        CUresult hami_ended_;                                                      \
                                                                                   \
        if (!hami_charges_take((charges), (uint64_t)(uintptr_t)(handle), (taken))) \
            (taken)->key = 0;                                                      \
        HAMI_CHANGING((taken)->key ? (taken)->device : HAMI_ANY_DEVICE);           \
        hami_ended_ = HAMI_INSIDE(call);                                           \
        hami_memory_settle_end((charges), (taken), hami_ended_);                   \
        hami_ended_;                                                               \
    })

void hami_memory_settle_end(struct hami_charges *charges, const struct hami_charge *taken, CUresult result);

/* Forget what ends with a context. */
void hami_memory_end_context(CUcontext context);

/* Forget the parent's charges, in a forked child. */
void hami_memory_forget(void);

#endif
