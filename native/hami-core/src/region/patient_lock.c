#include "patient_lock.h"

#include <sched.h>
#include <stdatomic.h>

#include "clock.h"
#include "waits.h"

/* A holder that is not in the driver gives the lock back before this many others have run. */
enum { YIELDS = 20 };

#define PAUSE_LEAST_NS 20000u
#define PAUSE_MOST_NS 1000000u

bool hami_patient_lock_try(struct hami_patient_lock *lock)
{
    return hami_try_lock(&lock->mutex, lock->rank);
}

bool hami_patient_lock_take_within(struct hami_patient_lock *lock, int device, uint64_t longest_ns)
{
    uint64_t slept_ns = 0, pause_ns = PAUSE_LEAST_NS;
    bool is_taken;

    hami_rank_check(lock->rank);
    is_taken = hami_patient_lock_try(lock);
    for (int yields = 0; !is_taken && yields < YIELDS; yields++) {
        sched_yield();
        is_taken = hami_patient_lock_try(lock);
    }
    while (!is_taken && slept_ns < longest_ns) {
        hami_sleep_ns(pause_ns);
        slept_ns += pause_ns;
        pause_ns = pause_ns < PAUSE_MOST_NS / 2 ? 2 * pause_ns : PAUSE_MOST_NS;
        is_taken = hami_patient_lock_try(lock);
    }
    hami_wait_once(lock->reason, device, slept_ns);
    return is_taken;
}

bool hami_patient_lock_take(struct hami_patient_lock *lock, int device)
{
    hami_rank_check(lock->rank);
    if (hami_patient_lock_try(lock))
        return true;
    if (atomic_load(&lock->is_stuck))
        return false;
    if (hami_patient_lock_take_within(lock, device, HAMI_LOCK_PATIENCE_NS))
        return true;
    atomic_store(&lock->is_stuck, true);
    return false;
}

void hami_patient_lock_give(struct hami_patient_lock *lock)
{
    if (atomic_load_explicit(&lock->is_stuck, memory_order_relaxed))
        atomic_store(&lock->is_stuck, false);
    hami_unlock(&lock->mutex, lock->rank);
}

void hami_patient_lock_forget(struct hami_patient_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
    atomic_store(&lock->is_stuck, false);
}
