/*
 * What this process uses of each device, and what the container is charged for it.
 *
 * Owns the charges. A launch is charged by an estimate first: it is debited from the container's bucket. The time the device was
 * busy replaces the estimate later. All busy time goes through the container's timeline (timeline.h), so overlapping streams and
 * processes are charged for their union, scaled by NVML's account (scale.h).
 *
 * A launch that does not end for long may wait for others, which must not wait for it. So there is a second bucket beside the
 * container's while such a launch runs (long_run.h). It is debited like the first one, but not for these launches. Then others wait
 * for the second one. When such a launch ends, its debit counts there, too.
 *
 * Locks: one of each device, hami_meter_lock(), for this file, interval.h, stream.h and event_pool.h. Their functions need the lock
 * of the device unless they say otherwise. It is never held while a thread sleeps. It is held over calls of the driver about events,
 * which do not wait for the device. If such a call takes long all the same, no other thread waits for the lock: it is a
 * patient_lock.h, and launches then pay their estimates without it. A thread that holds one only tries to take another.
 */
#ifndef HAMI_METER_H
#define HAMI_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu_time.h"
#include "kernel_cost.h"

/* Launches wait no longer than this for one that runs. */
#define HAMI_PATIENCE_NS 1000000000u

/* The assumed cost of a kind whose launches cannot be timed. */
#define HAMI_GUESS_NS 1000000u

/* The limit of each device in percent of its time; 0 for none. The limiter passes them down. */
struct hami_limits {
    unsigned percent[HAMI_DEVICES_MAX];
};

/* A device at one moment: its limit, and the time. */
struct hami_device_now {
    int device;
    unsigned percent; /* 0: no limit */
    uint64_t ns;
};

/* What is known of launches whose cost is not (probes.h). */
struct hami_probes {
    struct hami_kernel cost; /* as if they were launches of one kind */
    unsigned short_in_a_row;
    uint64_t began_ns; /* when the last one began */
};

struct hami_meter {
    /* What a nanosecond of a kernel costs, as a fixed-point number: HAMI_ONE if nothing overlaps. 0 stands for HAMI_ONE. */
    _Atomic uint64_t factor;
    /* Estimates of what the device has not done and does by itself (struct hami_intervals). */
    uint64_t queued_ns;
    unsigned queued_launches;
    uint64_t progress_ns; /* when an interval last ended */
    uint64_t ended_from_ns; /* the latest begin of those that ended */
    uint64_t paused_ns; /* when launches last had to wait */
    uint64_t set_aside_ns; /* what was debited for launches that others do not wait for */
    struct hami_probes probes;
    _Atomic uint64_t own_ns; /* all that this process was charged; read without the lock */
};

extern struct hami_kernels hami_kernels;
extern struct hami_meter hami_meters[HAMI_DEVICES_MAX];

/* Take a device's lock. Returns false without it if its holder is in a call of the driver that takes long. */
bool hami_meter_lock(int device);

/* Wait for it as long as for anything that must not be left out. */
bool hami_meter_lock_to_end(int device);

bool hami_meter_try_lock(int device);
void hami_meter_unlock(int device);

/* For a forked child: the first makes new locks, the second drops what the parent measured. */
void hami_meter_forget_locks(void);
void hami_meter_forget(void);

/* Return what launches cost that overlap as recent ones did, from what they would cost one by one. Needs no lock. */
static inline uint64_t hami_meter_together(const struct hami_meter *meter, uint64_t alone_ns)
{
    uint64_t factor = atomic_load_explicit(&meter->factor, memory_order_relaxed);

    return factor ? alone_ns * factor / HAMI_ONE : alone_ns;
}

/* Return the estimated cost of a launch; 0 if it is unknown. Needs no lock. */
static inline uint64_t hami_meter_estimate(const struct hami_meter *meter, const struct hami_kernel *kernel)
{
    uint64_t cost = atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);

    return cost ? hami_meter_together(meter, cost) + 1 : 0;
}

/* Return how long launches with this estimate occupy their stream. */
uint64_t hami_meter_occupied_ns(const struct hami_meter *meter, uint64_t estimate_ns);

/* Charge the estimate of launches to the container, and count it for this process. Needs no lock. */
void hami_meter_prepay(const struct hami_device_now *now, uint64_t estimate_ns);

/* Count GPU time for this process where turns are decided; negative to count less. */
void hami_meter_use(int device, int64_t gpu_ns);

/* Whether another process of the container, which also waits, should launch first. */
bool hami_meter_must_yield(int device, uint64_t now_ns);

/* Whether one that waits has used so much less that it should launch first, whoever has the turn. */
bool hami_meter_is_ahead(int device, uint64_t now_ns);

/* Note that this process waits for its turn, and until when it sleeps. */
void hami_meter_wait(int device, uint64_t until_ns);

/* Note that this process launched, and until when its next launch is expected. */
void hami_meter_pass(int device, uint64_t until_ns);

/* Return the bucket that launches wait for now; NULL if there is none. Needs no lock. */
const _Atomic uint64_t *hami_meter_bucket(int device, uint64_t now_ns);

/* Debit GPU time from the container's bucket; negative to give it back. Needs no lock. */
void hami_meter_debit(const struct hami_device_now *now, int64_t gpu_ns);

/* Do that in only one of the two buckets: the container's, or the second, which launches wait for during a long run. */
void hami_meter_debit_first(const struct hami_device_now *now, int64_t gpu_ns);
void hami_meter_debit_second(const struct hami_device_now *now, int64_t gpu_ns);

/* Launches stop waiting for what was debited, because of a launch that began at `since_ns`. Repeat it while the launch runs. */
void hami_meter_set_aside(const struct hami_device_now *now, uint64_t since_ns, uint64_t debited_ns);

/* Such a launch ended, or is given up: launches wait for what was debited for it. */
void hami_meter_end_aside(const struct hami_device_now *now, uint64_t debited_ns);

/* Count what was charged for work that the device has done. */
void hami_meter_count(int device, uint64_t gpu_ns);

/* Return what the container's other processes were charged. Only differences have a meaning. */
uint64_t hami_meter_others_ns(int device);

/*
 * Count the device being busy in [from, to), as far as intervals are trusted. It is taken from what was prepaid, and the rest is
 * added to `*due_ns`. Returns the whole cost.
 */
uint64_t hami_meter_pay(int device, uint64_t from_ns, uint64_t to_ns, uint64_t *prepaid_ns, uint64_t *due_ns);

/* Return what that would cost if this process were alone in the container. */
uint64_t hami_meter_own(int device, uint64_t from_ns, uint64_t to_ns);

/* Return the cost of busy time, by NVML's account. */
uint64_t hami_meter_priced(int device, uint64_t busy_ns);

/* Return the part of a cost that intervals decide. Estimates decide the rest. */
uint64_t hami_meter_believed(int device, uint64_t ns);

/* Keep the estimates of launches that could not be timed; they count as done just now. Needs no lock. */
void hami_meter_keep_estimate(int device, uint64_t estimate_ns, uint64_t now_ns);

/*
 * Guess the cost of a kind that is still unknown, because its launch cannot be timed. Otherwise each of its launches would wait for
 * a measurement that never comes. Does nothing if the cost is known, or for NULL.
 */
void hami_meter_guess(struct hami_kernel *kernel);

/* Learn from an interval what launches cost together, compared with one by one. */
void hami_meter_learn(int device, uint64_t alone_ns, uint64_t cost_ns);

#endif
