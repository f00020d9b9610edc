/*
 * Which calls are changing a device's memory and its account.
 *
 * A call changes the two one after the other; meanwhile NVML's number cannot be compared with the charges. Such a call declares
 * HAMI_CHANGING before its charge, and the change ends with the block. A device is quiet while no change of it is in progress. A
 * call that waits to compare has not changed anything yet, or has finished, so it pauses its change. No call changes one device
 * inside a change of another.
 * Who compares holds changes off: those that begin wait until it has finished, and it waits until those in progress have. Neither
 * waits for longer than HAMI_CHANGE_PATIENCE_NS, because the driver may take any time.
 * Locks: none. Fork: call hami_changes_forget() in the child.
 */
#ifndef HAMI_CHANGES_H
#define HAMI_CHANGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

enum { HAMI_ANY_DEVICE = HAMI_DEVICES_MAX, HAMI_NO_CHANGE = -1 };

struct hami_changes {
    _Atomic uint32_t begun, ended;
};

extern struct hami_changes hami_changes[HAMI_DEVICES_MAX + 1];
extern _Atomic int hami_changes_held_off; /* how many threads hold changes off */
extern _Thread_local int hami_own_change __attribute__((tls_model("initial-exec")));

#define HAMI_CHANGE_PATIENCE_NS 10000000u

/* Wait with the calling thread's change, which has just begun, while another thread holds changes off. */
void hami_change_wait(void);

/* A device below 0 is unknown: any device may change. */
static inline int hami_change_begin(int device)
{
    int change = device < 0 ? HAMI_ANY_DEVICE : device;

    hami_own_change = change;
    atomic_fetch_add(&hami_changes[change].begun, 1);
    if (__builtin_expect(atomic_load(&hami_changes_held_off), 0))
        hami_change_wait();
    return change;
}

static inline void hami_change_end(const int *change)
{
    atomic_fetch_add(&hami_changes[*change].ended, 1);
    hami_own_change = HAMI_NO_CHANGE;
}

#define HAMI_CHANGING(device) int changing_ __attribute__((cleanup(hami_change_end), unused)) = hami_change_begin(device)

/* Pause and resume the calling thread's change, if it has one. */
void hami_change_pause(void);
void hami_change_resume(void);

/*
 * Hold changes off, and wait until those of a device have finished. Pair with hami_changes_let(). The calling thread has no change,
 * or has paused it. A change that lasted too long once is not waited for again.
 */
void hami_changes_hold_off(int device);
void hami_changes_let(void);

/* Whether no change of the device is in progress. `*changes` identifies this moment. */
bool hami_changes_are_none(int device, uint32_t *changes);

/* Whether no change of the device has begun since that moment. */
bool hami_changes_are_none_since(int device, uint32_t changes);

void hami_changes_forget(void);

#endif
