#include "account.h"

#include "context_making.h"
#include "log.h"
#include "overhead.h"
#include "region.h"
#include "region_limits.h"

/* Whether there may be more room for a charge that was refused. */
static bool is_more_room(int device)
{
    bool is_more = hami_overhead_make_room(device);

    return hami_context_await_first(device) || is_more;
}

CUresult hami_memory_charge(int device, size_t bytes)
{
    hami_overhead_follow(device, bytes);
    if (hami_blocks_charge(device, bytes) || (is_more_room(device) && hami_blocks_charge(device, bytes)))
        return CUDA_SUCCESS;
    hami_log(HAMI_LOG_WARNING, "device %d: %zu bytes refused: %llu of %llu bytes in use", device, bytes,
             (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

enum hami_growth hami_memory_grow_pool(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result)
{
    int device = hami_pool_device(pool);
    enum hami_growth outcome;

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (device < 0)
        return HAMI_GROWTH_ENDED;
    hami_overhead_follow(device, bytes);
    outcome = hami_pool_grow(pool, bytes, take, arguments, result);
    if (outcome == HAMI_GROWTH_REFUSED && is_more_room(device))
        outcome = hami_pool_grow(pool, bytes, take, arguments, result);
    if (outcome == HAMI_GROWTH_WITHIN)
        hami_region_record_use(device);
    return outcome;
}

void hami_memory_discharge(const struct hami_charge *charge)
{
    if (charge->kind == HAMI_MEMORY_POOLED)
        hami_pool_drop(charge->owner);
    else
        hami_blocks_discharge(charge->device, charge->bytes);
}

bool hami_memory_remember(struct hami_charges *charges, struct hami_charge charge)
{
    struct hami_charge replaced;

    if (!hami_charges_put(charges, charge, &replaced)) {
        hami_memory_discharge(&charge);
        return false;
    }
    if (replaced.key)
        hami_memory_discharge(&replaced);
    hami_region_record_use(charge.device);
    return true;
}

void hami_memory_settle_end(struct hami_charges *charges, const struct hami_charge *taken, CUresult result)
{
    if (!taken->key)
        return;
    if (result == CUDA_SUCCESS)
        hami_memory_discharge(taken);
    else
        hami_memory_remember(charges, *taken);
}

void hami_memory_change_context(CUcontext context, CUcontext name)
{
    hami_charges_change_owner(&hami_pointers, (uint64_t)(uintptr_t)context, (uint64_t)(uintptr_t)name);
    hami_charges_change_owner(&hami_arrays, (uint64_t)(uintptr_t)context, (uint64_t)(uintptr_t)name);
}

void hami_memory_end_context(CUcontext context)
{
    hami_charges_take_owned(&hami_pointers, (uint64_t)(uintptr_t)context, hami_memory_discharge);
    hami_charges_take_owned(&hami_arrays, (uint64_t)(uintptr_t)context, hami_memory_discharge);
}

void hami_memory_forget(void)
{
    static struct hami_charges *const tables[] = {&hami_pointers, &hami_handles, &hami_mappings, &hami_bindings, &hami_pools,
                                                  &hami_graphs,   &hami_arrays,  &hami_imports,  &hami_contexts, &hami_greens};

    for (size_t index = 0; index < sizeof(tables) / sizeof(tables[0]); index++)
        hami_charges_forget(tables[index]);
    hami_blocks_forget();
    hami_changes_forget();
    hami_pools_forget();
    hami_overhead_forget();
}
