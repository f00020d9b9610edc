#include "context_making.h"

#include "changes.h"
#include "charges.h"
#include "context_cost.h"
#include "hooks.h"
#include "log.h"
#include "overhead.h"
#include "pool.h"
#include "region.h"
#include "region_contexts.h"
#include "region_file.h"
#include "region_limits.h"

bool hami_context_await_first(int device)
{
    bool is_locked;

    if (hami_inside || hami_context_count(device))
        return false;
    hami_change_pause();
    is_locked = hami_region_lock_contexts(device);
    if (is_locked)
        hami_region_unlock_contexts(device);
    hami_change_resume();
    return is_locked;
}

/* Charge a new context in place of what was held. Returns false if it passes the limit. */
static bool charge(int device, const struct hami_before_context *before, CUcontext context)
{
    struct hami_charge made = {.key = (uint64_t)(uintptr_t)context, .device = (int16_t)device, .references = 1}, replaced;
    bool is_as_held = hami_overhead_add_context(device, before);

    hami_charges_put(&hami_contexts, made, &replaced);
    return is_as_held || hami_pools_are_within(device);
}

static bool make(int device, struct hami_before_context *before, const struct hami_context_maker *maker, CUresult *result)
{
    hami_overhead_look_before_context(device, before);
    hami_context_begin_making(device);
    *result = HAMI_INSIDE(maker->make(maker->arguments));
    if (*result == CUDA_SUCCESS && *maker->context)
        return charge(device, before, *maker->context);
    hami_context_end_making(device);
    hami_context_cost_tell(device);
    hami_region_drop_hold(device, before->held);
    return true;
}

/*
 * Hold what a context is expected to take. Returns false if it does not fit. If no process has a context or makes one, hold all that
 * is left and keep the lock until the cost is known: other processes cannot miss that memory, because they wait for the lock before
 * they make a context. If the lock is not free in time, its holder has held what was left: the context is made if there is more than
 * that, and otherwise refused.
 */
static bool hold(int device, bool *is_locked, uint64_t *held)
{
    bool is_held;

    if (!hami_region_limit(device))
        return true;
    *is_locked = hami_region_lock_contexts(device);
    if (!hami_context_cost_expected(device, held))
        return (*held = hami_region_hold_rest(device, HAMI_CONTEXT_MOST)) != 0;
    is_held = hami_overhead_hold_now(device, *held);
    if (is_held)
        hami_region_expect_context(device, *held);
    if (*is_locked)
        hami_region_unlock_contexts(device);
    *is_locked = false;
    return is_held;
}

CUresult hami_context_make(int device, const struct hami_context_maker *maker, bool *is_within)
{
    struct hami_before_context before = {.held = 0};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool is_locked = false;

    hami_overhead_refresh(device);
    *is_within = true;
    if (hold(device, &is_locked, &before.held))
        *is_within = make(device, &before, maker, &result);
    else
        hami_log(HAMI_LOG_WARNING, "device %d: context refused: %llu of %llu bytes in use", device,
                 (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    if (is_locked)
        hami_region_unlock_contexts(device);
    return result;
}

void hami_context_discharge(CUcontext context)
{
    struct hami_charge made;

    if (hami_charges_take(&hami_contexts, (uint64_t)(uintptr_t)context, &made))
        hami_overhead_remove_context(made.device);
}
