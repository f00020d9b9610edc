/*
 * Charging this process for device memory, around the driver's own calls.
 *
 * The order is always: charge, call the driver, give the charge back if the driver refuses. So the processes of a container can
 * never get more than their limit together, and CUDA_ERROR_OUT_OF_MEMORY is returned before the driver is asked.
 *
 * The charge is what the driver takes (blocks.h), or what a pool must grow by (pool.h). Before a charge is refused, room is made
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

/* The kind of memory that a charge is for. */
enum hami_memory_kind {
    HAMI_MEMORY_PLAIN,
    HAMI_MEMORY_POOLED,     /* costs nothing: its pool is charged */
    HAMI_MEMORY_SUBSTITUTE, /* managed memory instead of device memory */
};

/*
 * Charge an allocation to a region device. If it does not fit, pools first give up what they do not use. Returns
 * CUDA_ERROR_OUT_OF_MEMORY if it still does not fit.
 */
CUresult hami_memory_charge(int device, size_t bytes);

/* Take memory from a pool as hami_pool_grow() does. If it does not fit, make room first and try again. */
enum hami_growth hami_memory_grow_pool(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result);

/* Give a charge back. */
void hami_memory_discharge(const struct hami_charge *charge);

/* Keep a charge under the driver's key. Returns false, and gives the charge back, if there is no memory to keep it. */
bool hami_memory_remember(struct hami_charges *charges, struct hami_charge charge);

/*
 * The body that makes an object on a region device; below 0 it is not charged. `arguments` are the driver's, in parentheses; it returns
 * the object in `*made`. `charge` is kept in `table` under the object. `undo` is the driver's function that destroys the object.
 */
#define HAMI_MEMORY_MAKE(symbol, arguments, made, table, charged_device, charge, undo) \
    do {                                                                               \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                            \
        int device_ = (charged_device);                                                \
        struct hami_charge charge_;                                                    \
        CUresult result_;                                                              \
                                                                                       \
        if (device_ < 0)                                                               \
            return real_ arguments;                                                    \
        HAMI_CHANGING(device_);                                                        \
        charge_ = (charge);                                                            \
        charge_.device = (int16_t)device_;                                             \
        result_ = hami_memory_charge(device_, charge_.bytes);                          \
        if (result_ != CUDA_SUCCESS)                                                   \
            return result_;                                                            \
        result_ = HAMI_INSIDE(real_ arguments);                                        \
        if (result_ != CUDA_SUCCESS) {                                                 \
            hami_memory_discharge(&charge_);                                           \
            return result_;                                                            \
        }                                                                              \
        charge_.key = (uint64_t)(uintptr_t)*(made);                                    \
        if (hami_memory_remember(&(table), charge_))                                   \
            return CUDA_SUCCESS;                                                       \
        HAMI_INSIDE(hami_real.undo(*(made)));                                          \
        return CUDA_ERROR_OUT_OF_MEMORY;                                               \
    } while (0)

/*
 * End what a charge is for. `call` is the driver's, and its result is the value. The charge is removed first, because another
 * thread may get the same address or handle as soon as the driver has freed it. It is put back if the driver refuses. `taken`
 * receives the charge, or a key of 0.
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

/* Keep what was allocated in a context under another name of the context. */
void hami_memory_change_context(CUcontext context, CUcontext name);

/* Discharge what was allocated in a context that ended. */
void hami_memory_end_context(CUcontext context);

/* Forget the parent's charges, in a forked child. */
void hami_memory_forget(void);

#endif
