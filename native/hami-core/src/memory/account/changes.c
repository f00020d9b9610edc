#include "changes.h"

struct hami_changes hami_changes[HAMI_DEVICES_MAX + 1];
_Thread_local int hami_own_change __attribute__((tls_model("initial-exec"))) = HAMI_NO_CHANGE;

void hami_change_pause(void)
{
    if (hami_own_change != HAMI_NO_CHANGE)
        atomic_fetch_add(&hami_changes[hami_own_change].ended, 1);
}

void hami_change_resume(void)
{
    if (hami_own_change != HAMI_NO_CHANGE)
        atomic_fetch_add(&hami_changes[hami_own_change].begun, 1);
}

static uint32_t changes_begun(int device)
{
    return atomic_load(&hami_changes[device].begun) + atomic_load(&hami_changes[HAMI_ANY_DEVICE].begun);
}

/* Ends are read first: if a change begins in between, the answer is false. */
bool hami_changes_are_settled(int device, uint32_t *changes)
{
    uint32_t ended = atomic_load(&hami_changes[device].ended) + atomic_load(&hami_changes[HAMI_ANY_DEVICE].ended);

    *changes = changes_begun(device);
    return *changes == ended;
}

bool hami_changes_are_none_since(int device, uint32_t changes)
{
    return changes_begun(device) == changes;
}

void hami_changes_forget(void)
{
    for (int device = 0; device <= HAMI_ANY_DEVICE; device++) {
        atomic_store(&hami_changes[device].begun, 0);
        atomic_store(&hami_changes[device].ended, 0);
    }
    hami_own_change = HAMI_NO_CHANGE;
}
