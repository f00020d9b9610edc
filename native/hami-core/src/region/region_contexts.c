#include "region_contexts.h"

#include <stdatomic.h>

#include "region.h"

void hami_region_expect_context(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        atomic_store(&slot->used[device].expected, bytes + 1);
}

void hami_region_expect_no_context(int device)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        atomic_store(&slot->used[device].expected, 0);
}

/* Find what a context of a process takes, or is expected to take. HAMi's own library stores only what its contexts take together. */
static bool find_context(const struct hami_device_memory *used, uint64_t *bytes)
{
    uint64_t expected = atomic_load(&used->expected), taken = atomic_load(&used->context);

    *bytes = expected ? expected - 1 : taken;
    return expected || taken;
}

bool hami_region_dearest_context(int device, uint64_t *bytes)
{
    struct hami_slot *slot;
    uint64_t each;
    bool is_any = false;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++) {
        if (atomic_load(&slot->pid) <= 0 || !find_context(&slot->used[device], &each))
            continue;
        *bytes = is_any && *bytes > each ? *bytes : each;
        is_any = true;
    }
    return is_any;
}
