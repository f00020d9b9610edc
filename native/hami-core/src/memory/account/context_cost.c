#include "context_cost.h"

#include <stdatomic.h>
#include <string.h>

#include "hami/region.h"
#include "own_process.h"
#include "region_contexts.h"

/* Less is noise. */
#define CONTEXT_LEAST ((uint64_t)16 << 20)

static struct {
    _Atomic int count, making;
    _Atomic uint64_t each_bytes; /* the most that a context was measured to take; 0 for unknown */
    bool is_estimated;           /* not measured yet */
} costs[HAMI_DEVICES_MAX];

int hami_context_count(int device)
{
    return atomic_load(&costs[device].count);
}

void hami_context_count_change(int device, int change)
{
    atomic_fetch_add(&costs[device].count, change);
}

bool hami_context_is_being_made(int device)
{
    return atomic_load(&costs[device].making) != 0;
}

void hami_context_begin_making(int device)
{
    atomic_fetch_add(&costs[device].making, 1);
}

void hami_context_end_making(int device)
{
    atomic_fetch_sub(&costs[device].making, 1);
}

uint64_t hami_context_cost(int device)
{
    return atomic_load(&costs[device].each_bytes);
}

uint64_t hami_context_part(int device, uint64_t bytes)
{
    uint64_t contexts = (uint64_t)hami_context_count(device) * hami_context_cost(device);

    return contexts < bytes ? contexts : bytes;
}

bool hami_context_cost_expected(int device, uint64_t *bytes)
{
    return hami_region_dearest_context(device, bytes) || (*bytes = hami_context_cost(device)) != 0;
}

/*
 * Return what a context cost by the device's use before and after. Others' allocations only add to it, so the smaller number is
 * better.
 */
static uint64_t estimate(int device, uint64_t device_before)
{
    uint64_t device_after = hami_nvml_device_used(device);
    uint64_t bytes = device_after > device_before ? device_after - device_before : 0;
    uint64_t others;

    if (bytes < CONTEXT_LEAST || bytes > HAMI_CONTEXT_MOST)
        bytes = 0;
    if (hami_region_dearest_context(device, &others) && (!bytes || others < bytes))
        bytes = others;
    return bytes;
}

void hami_context_cost_learn(int device, uint64_t measured, uint64_t device_before)
{
    uint64_t each = hami_context_cost(device);

    if (measured > each || (measured && costs[device].is_estimated)) {
        atomic_store(&costs[device].each_bytes, measured);
        costs[device].is_estimated = false;
    } else if (!each) {
        atomic_store(&costs[device].each_bytes, estimate(device, device_before));
        costs[device].is_estimated = true;
    }
}

void hami_context_cost_bound(int device, uint64_t together)
{
    if (costs[device].is_estimated && hami_context_count(device) == 1 && together < hami_context_cost(device))
        atomic_store(&costs[device].each_bytes, together);
}

void hami_context_cost_tell(int device)
{
    if (hami_context_count(device))
        hami_region_expect_context(device, hami_context_cost(device));
    else
        hami_region_expect_no_context(device);
}

void hami_context_costs_forget(void)
{
    memset((void *)costs, 0, sizeof(costs));
}
