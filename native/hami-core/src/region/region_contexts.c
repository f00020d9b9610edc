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

/*
 * Find what a context of a process takes, or is expected to take. What is expected is read first, because it is cleared after what
 * is taken has been stored. HAMi's own library does not store how many contexts a process has; then it counts as one.
 */
static bool find_context(const struct hami_device_memory *used, uint64_t *bytes)
{
    uint64_t expected = atomic_load(&used->expected), taken = atomic_load(&used->context), contexts = atomic_load(&used->contexts);

    if (taken || contexts)
        *bytes = taken / (contexts ? contexts : 1);
    else if (expected)
        *bytes = expected - 1;
    return taken || contexts || expected;
}

bool hami_region_least_context(int device, uint64_t *bytes)
{
    struct hami_slot *slot;
    uint64_t each;
    bool is_any = false;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++) {
        if (atomic_load(&slot->pid) <= 0 || !find_context(&slot->used[device], &each))
            continue;
        *bytes = is_any && *bytes < each ? *bytes : each;
        is_any = true;
    }
    return is_any;
}
