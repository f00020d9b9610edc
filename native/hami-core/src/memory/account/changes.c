#include "changes.h"

#include <sched.h>

#include "clock.h"
#include "waits.h"

/* A change that is not in the driver finishes before this many others have run. */
enum { YIELDS = 20 };

#define PAUSE_NS 20000u

struct hami_changes hami_changes[HAMI_DEVICES_MAX + 1];
_Atomic int hami_changes_held_off;
_Thread_local int hami_own_change __attribute__((tls_model("initial-exec"))) = HAMI_NO_CHANGE;

void hami_change_pause(void)
{
    if (hami_own_change != HAMI_NO_CHANGE)
        atomic_fetch_add(&hami_changes[hami_own_change].ended, 1);
}

void hami_change_resume(void)
{
    if (hami_own_change == HAMI_NO_CHANGE)
        return;
    atomic_fetch_add(&hami_changes[hami_own_change].begun, 1);
    if (atomic_load(&hami_changes_held_off))
        hami_change_wait();
}

/* Let others run, at first without sleeping. Returns how long it has slept. */
static uint64_t wait_a_little(int *yields)
{
    if ((*yields)++ < YIELDS) {
        sched_yield();
        return 0;
    }
    hami_sleep_ns(PAUSE_NS);
    return PAUSE_NS;
}

/* Each time the change begins, either this thread sees that changes are held off, or who does sees the change. */
void hami_change_wait(void)
{
    uint64_t slept_ns = 0;
    int yields = 0;

    while (atomic_load(&hami_changes_held_off) && slept_ns < HAMI_CHANGE_PATIENCE_NS) {
        atomic_fetch_add(&hami_changes[hami_own_change].ended, 1);
        while (atomic_load(&hami_changes_held_off) && slept_ns < HAMI_CHANGE_PATIENCE_NS)
            slept_ns += wait_a_little(&yields);
        atomic_fetch_add(&hami_changes[hami_own_change].begun, 1);
    }
    hami_wait_once(HAMI_WAIT_DRIVER, hami_own_change == HAMI_ANY_DEVICE ? -1 : hami_own_change, slept_ns);
}

static uint32_t changes_begun(int device)
{
    return atomic_load(&hami_changes[device].begun) + atomic_load(&hami_changes[HAMI_ANY_DEVICE].begun);
}

static uint32_t changes_ended(int device)
{
    return atomic_load(&hami_changes[device].ended) + atomic_load(&hami_changes[HAMI_ANY_DEVICE].ended);
}

/* Ends are read first: if a change begins in between, the answer is false. */
bool hami_changes_are_none(int device, uint32_t *changes)
{
    uint32_t ended = changes_ended(device);

    *changes = changes_begun(device);
    return *changes == ended;
}

/* Changes that lasted too long are recognised by how many have ended: until one more has, they are still in progress. */
void hami_changes_hold_off(int device)
{
    static _Atomic uint32_t next_when_late[HAMI_DEVICES_MAX]; /* the number of the end that was waited for, from 1 */
    uint64_t slept_ns = 0;
    uint32_t changes;
    int yields = 0;

    atomic_fetch_add(&hami_changes_held_off, 1);
    if (changes_ended(device) + 1 == atomic_load(&next_when_late[device]))
        return;
    while (!hami_changes_are_none(device, &changes) && slept_ns < HAMI_CHANGE_PATIENCE_NS)
        slept_ns += wait_a_little(&yields);
    if (slept_ns >= HAMI_CHANGE_PATIENCE_NS)
        atomic_store(&next_when_late[device], changes_ended(device) + 1);
    hami_wait_once(HAMI_WAIT_DRIVER, device, slept_ns);
}

void hami_changes_let(void)
{
    atomic_fetch_sub(&hami_changes_held_off, 1);
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
    atomic_store(&hami_changes_held_off, 0);
    hami_own_change = HAMI_NO_CHANGE;
}
