/*
 * Charging this process for device memory, around the driver's own calls.
 *
 * The order is always: charge, ask the driver, give the charge back if it refuses. So several processes of a container can never
 * together be given more than their limit, and what is refused is refused with CUDA_ERROR_OUT_OF_MEMORY before the driver is asked.
 *
 * What is charged is what the driver takes: blocks of 2 MiB. A request of 1 MiB or more has blocks of its own; smaller ones, in units
 * of 512 bytes, share blocks. A charge keeps the bytes that were asked for, and costs the same when it ends.
 *
 * memory.c owns that and plain memory, memory_pool.c pools, memory_overhead.c contexts and modules; the other files are the calls.
 */
#ifndef HAMI_MEMORY_H
#define HAMI_MEMORY_H

#include <stdatomic.h>
#include <stddef.h>

#include "charges.h"
#include "hami/cuda_abi.h"
#include "hami/region.h"
#include "hooks.h"

/* What a charge's memory is. */
enum hami_memory_kind {
    HAMI_MEMORY_PLAIN,
    HAMI_MEMORY_POOLED,     /* costs nothing itself: its pool does */
    HAMI_MEMORY_SUBSTITUTE, /* managed memory in the place of device memory that the card does not have */
};

/* The driver's own unit: see the top. */
#define HAMI_MEMORY_BLOCK ((uint64_t)2 << 20)

/*
 * While the driver and the account change one after the other, NVML's number cannot be compared with the charges. A call that changes
 * both says so by HAMI_CHANGING, from before its charge to its end; hami_memory_is_settled() is false while any is at it on that device,
 * and hami_memory_is_unchanged() if any has begun since. A call that waits for its turn to compare has changed nothing yet, or is done:
 * meanwhile it pauses. No call changes one device inside a change of another.
 */
enum { HAMI_ANY_DEVICE = HAMI_DEVICES_MAX, HAMI_NO_CHANGE = -1 };

struct hami_memory_changes {
    _Atomic uint32_t begun, ended;
};

extern struct hami_memory_changes hami_memory_changes[HAMI_DEVICES_MAX + 1];
extern _Thread_local int hami_memory_own_change __attribute__((tls_model("initial-exec")));

/* A device below 0 is not known: it may be any. */
static inline int hami_memory_begin_change(int device)
{
    int change = device < 0 ? HAMI_ANY_DEVICE : device;

    hami_memory_own_change = change;
    atomic_fetch_add(&hami_memory_changes[change].begun, 1);
    return change;
}

static inline void hami_memory_end_change(const int *change)
{
    atomic_fetch_add(&hami_memory_changes[*change].ended, 1);
    hami_memory_own_change = HAMI_NO_CHANGE;
}

#define HAMI_CHANGING(device) \
    int changing_ __attribute__((cleanup(hami_memory_end_change), unused)) = hami_memory_begin_change(device)

void hami_memory_pause_change(void);
void hami_memory_resume_change(void);

bool hami_memory_is_settled(int device, uint32_t *changes);
bool hami_memory_is_unchanged(int device, uint32_t changes);

/* What the driver takes for an allocation of its own: whole blocks. UINT64_MAX when there is no such number. */
uint64_t hami_memory_blocks(uint64_t bytes);

/*
 * Charge for an allocation on a region device. When it does not fit, what pools keep unused is given up first; then
 * CUDA_ERROR_OUT_OF_MEMORY.
 */
CUresult hami_memory_charge(int device, size_t bytes);

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

/* Who has allocated on this thread: the current context, as the owner of a charge. */
uint64_t hami_memory_owner(void);

/* Forget what ends with a context. */
void hami_memory_end_context(CUcontext context);

/*
 * With CUDA_OVERSUBSCRIBE: after the driver found no room on the current device, take managed memory that prefers it. `result` is what
 * the driver said; returns what the program is told. `*is_substitute` says which memory it is.
 */
CUresult hami_memory_substitute(CUresult result, CUdeviceptr *pointer, size_t bytes, bool *is_substitute);

/* Forget the parent's charges, and how often it retained its contexts, in a forked child. */
void hami_memory_forget(void);
void hami_memory_forget_contexts(void);

#endif
