/*
 * Which calls are changing what the driver and the account say of a device.
 *
 * While the two change one after the other, NVML's number cannot be compared with the charges. A call that changes both declares
 * HAMI_CHANGING before its charge; the change ends with the block. A device is settled while no change of it is under way. A call that
 * waits for its turn to compare has changed nothing yet, or is done: meanwhile it pauses its change. No call changes a device inside
 * a change of another.
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
extern _Thread_local int hami_own_change __attribute__((tls_model("initial-exec")));

/* A device below 0 is not known: it may be any. */
static inline int hami_change_begin(int device)
{
    int change = device < 0 ? HAMI_ANY_DEVICE : device;

    hami_own_change = change;
    atomic_fetch_add(&hami_changes[change].begun, 1);
    return change;
}

static inline void hami_change_end(const int *change)
{
    atomic_fetch_add(&hami_changes[*change].ended, 1);
    hami_own_change = HAMI_NO_CHANGE;
}

#define HAMI_CHANGING(device) int changing_ __attribute__((cleanup(hami_change_end), unused)) = hami_change_begin(device)

/* Pause the calling thread's change, if it has one, and go on with it. */
void hami_change_pause(void);
void hami_change_resume(void);

/* Whether no change of the device is under way; `*changes` numbers the moment. */
bool hami_changes_are_settled(int device, uint32_t *changes);

/* Whether no change of the device has begun since. */
bool hami_changes_are_none_since(int device, uint32_t changes);

void hami_changes_forget(void);

#endif
