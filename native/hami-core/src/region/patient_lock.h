/*
 * A lock between the threads of this process that nobody waits for long: for what is ordered over calls of the driver, which may
 * take any time.
 *
 * A thread that does not get it goes on without what it protects. Once a thread has waited in vain, no other waits until the holder
 * has given it back. Waits are counted (waits.h).
 * Fork: call hami_patient_lock_forget() in the child.
 */
#ifndef HAMI_PATIENT_LOCK_H
#define HAMI_PATIENT_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"
#include "lock_rank.h"

struct hami_patient_lock {
    enum hami_lock_rank rank;
    enum hami_wait_reason reason;
    pthread_mutex_t mutex;
    _Atomic bool is_stuck; /* a thread has waited in vain */
};

#define HAMI_PATIENT_LOCK(rank, reason) {rank, reason, PTHREAD_MUTEX_INITIALIZER, false}

/* How long the holder is waited for: many times what it takes if the driver answers at once. */
#define HAMI_LOCK_PATIENCE_NS 10000000u

/* Take the lock of a region device. Returns false without it if its holder is in a call of the driver that takes long. */
bool hami_patient_lock_take(struct hami_patient_lock *lock, int device);

/* Take it even if another thread has waited in vain, and wait for at most so long. */
bool hami_patient_lock_take_within(struct hami_patient_lock *lock, int device, uint64_t longest_ns);

/* Take it if it is free. */
bool hami_patient_lock_try(struct hami_patient_lock *lock);

void hami_patient_lock_give(struct hami_patient_lock *lock);

void hami_patient_lock_forget(struct hami_patient_lock *lock);

#endif
