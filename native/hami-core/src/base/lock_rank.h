/*
 * The order of this library's locks, which builds with HAMI_CHECK_LOCKS check: debug builds, and those with a sanitizer.
 *
 * A thread that holds a lock waits only for locks of higher ranks, so no two threads wait for each other. It may try any lock that it
 * does not wait for. A thread that breaks the order says so and aborts. In other builds the checks are empty.
 * Fork: call hami_ranks_forget() in the child.
 */
#ifndef HAMI_LOCK_RANK_H
#define HAMI_LOCK_RANK_H

#include <pthread.h>

enum hami_lock_rank {
    HAMI_RANK_TURN,         /* memory/context.c: who makes or ends a context of a device, over the driver's call */
    HAMI_RANK_CONTEXTS,     /* region/region_file.c: the same between processes, over the driver's call */
    HAMI_RANK_OVERHEAD,     /* memory/account/overhead.c: a device's contexts and modules, while NVML is asked */
    HAMI_RANK_METER,        /* time/meter.c: a device's launches, while the driver is asked for events */
    HAMI_RANK_STREAMS,      /* time/stream.c: the table of streams */
    HAMI_RANK_CHARGES,      /* memory/account/charges.c: a shard of a table, also while what it holds is discharged */
    HAMI_RANK_POOLS,        /* memory/account/pool.c: calls about pools, and what they are charged */
    HAMI_RANK_OWNERS,       /* memory/account/charges.c: the tables of pools and of allocation handles */
    HAMI_RANK_CANDIDATES,   /* nvml/candidates.c */
    HAMI_RANK_DEVICES,      /* nvml/devices.c: the devices of the CUDA ordinals */
    HAMI_RANK_CLAIM,        /* region/region.c: this process's slot */
    HAMI_RANK_INVENTORY,    /* region/region_file.c: who asks the driver for the devices */
    HAMI_RANK_REGION,       /* region/region_file.c: the region between processes */
    HAMI_RANK_LIMITS,       /* region/region_limits.c: the limits file */
    HAMI_RANK_ATTACH,       /* region/region_file.c: which thread's mapping is used */
    HAMI_RANKS
};

#ifdef HAMI_CHECK_LOCKS

/* Abort if the calling thread holds a lock of this rank or a higher one. Call it before waiting for a lock. */
void hami_rank_check(enum hami_lock_rank rank);

/* Note that the calling thread has taken a lock, or gives it back. */
void hami_rank_enter(enum hami_lock_rank rank);
void hami_rank_leave(enum hami_lock_rank rank);

void hami_ranks_forget(void);

#else

static inline void hami_rank_check(enum hami_lock_rank rank)
{
    (void)rank;
}

static inline void hami_rank_enter(enum hami_lock_rank rank)
{
    (void)rank;
}

static inline void hami_rank_leave(enum hami_lock_rank rank)
{
    (void)rank;
}

static inline void hami_ranks_forget(void)
{
}

#endif

static inline void hami_lock(pthread_mutex_t *mutex, enum hami_lock_rank rank)
{
    hami_rank_check(rank);
    pthread_mutex_lock(mutex);
    hami_rank_enter(rank);
}

static inline _Bool hami_try_lock(pthread_mutex_t *mutex, enum hami_lock_rank rank)
{
    if (pthread_mutex_trylock(mutex) != 0)
        return 0;
    hami_rank_enter(rank);
    return 1;
}

static inline void hami_unlock(pthread_mutex_t *mutex, enum hami_lock_rank rank)
{
    hami_rank_leave(rank);
    pthread_mutex_unlock(mutex);
}

#endif
