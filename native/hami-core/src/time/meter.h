/*
 * What this process uses of each device, and what the container pays for it.
 *
 * Owns the charges: an estimate is debited from the container's bucket when a launch is made, and replaced by the time the device was
 * busy when it tells. All busy time goes through the container's timeline (timeline.h), so overlapping streams and processes pay for
 * their union, at the price that NVML's account sets (scale.h).
 *
 * Locks: hami_meter_mutex, for this file, interval.h and stream.h; their functions need it held unless they say otherwise. It is never
 * held while sleeping, and the driver's calls made under it do not wait for the device.
 */
#ifndef HAMI_METER_H
#define HAMI_METER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu_time.h"
#include "kernel_cost.h"

/* After so long a kernel that runs is charged no more until it ends, and nothing waits for it any longer. */
#define HAMI_PATIENCE_NS 10000000000u

/* The limit of each device, percent of its time; 0 for none. The limiter knows them; who charges is told. */
struct hami_limits {
    unsigned percent[HAMI_DEVICES_MAX];
};

/* A device at one moment: the limit that holds then, and the time. */
struct hami_device_now {
    int device;
    unsigned percent; /* 0: no limit */
    uint64_t ns;
};

struct hami_meter {
    /* What a nanosecond of a kernel costs, as a fixed-point number: HAMI_ONE for one that overlaps with nothing; 0 stands for that. */
    _Atomic uint64_t factor;
    uint64_t queued_ns; /* estimates of what the device has not done */
    unsigned queued_launches;
    uint64_t progress_ns; /* when something last ended or nothing was queued */
    uint64_t paused_ns; /* when launches last had to wait */
    _Atomic uint64_t own_ns; /* charged to this process, in all; read without the lock */
};

extern struct hami_kernels hami_kernels;
extern struct hami_meter hami_meters[HAMI_DEVICES_MAX];

extern pthread_mutex_t hami_meter_mutex;

/* In a forked child: what was learned is the parent's. */
void hami_meter_forget(void);

/* What a launch of that kind is estimated to cost the container; 0 when it is not known. Needs no lock. */
static inline uint64_t hami_meter_estimate(const struct hami_meter *meter, const struct hami_kernel *kernel)
{
    uint64_t cost = atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);
    uint64_t factor = atomic_load_explicit(&meter->factor, memory_order_relaxed);

    return cost ? (factor ? cost * factor / HAMI_ONE : cost) + 1 : 0;
}

/* How long a stream is occupied by what is estimated to cost `estimate_ns`. */
uint64_t hami_meter_occupied_ns(const struct hami_meter *meter, uint64_t estimate_ns);

/* Pay what launches are estimated to cost; it counts as this process's. */
void hami_meter_prepay(const struct hami_device_now *now, uint64_t estimate_ns);

/* Count GPU time as this process's where its turn is decided, or no longer when negative. */
void hami_meter_use(int device, int64_t gpu_ns);

/* Whether another process of the container should launch first, which waits as long as this one does. */
bool hami_meter_must_yield(int device, uint64_t now_ns);

/* Say that this process waits for its share and looks again by then. */
void hami_meter_wait(int device, uint64_t until_ns);

/* Say that its launch passed, and by when there is another one if it goes on. */
void hami_meter_pass(int device, uint64_t until_ns);

/* Take GPU time from the container's bucket, or give it back when negative. */
void hami_meter_debit(const struct hami_device_now *now, int64_t gpu_ns);

/* Account for what was charged for work that the device has done. */
void hami_meter_count(int device, uint64_t gpu_ns);

/* What the container's other processes were charged so far; only differences count. */
uint64_t hami_meter_others_ns(int device);

/*
 * Pay for the device's being busy in [from, to), as far as that is believed: first from what is prepaid, the rest from the bucket.
 * Returns the whole price.
 */
uint64_t hami_meter_pay(const struct hami_device_now *now, uint64_t from_ns, uint64_t to_ns, uint64_t *prepaid_ns);

/* What that would cost if this process had the container for itself. */
uint64_t hami_meter_own(int device, uint64_t from_ns, uint64_t to_ns);

/* What so much busy time costs by NVML's account. */
uint64_t hami_meter_priced(int device, uint64_t busy_ns);

/* The part of a price that spans decide about; estimates decide about the rest. */
uint64_t hami_meter_believed(int device, uint64_t ns);

/* Let estimates stand for launches that could not be timed: they are taken to have run just now. */
void hami_meter_let_stand(int device, uint64_t estimate_ns, uint64_t now_ns);

/* Learn from a span what launches cost together that by themselves would take so long. */
void hami_meter_learn(int device, uint64_t alone_ns, uint64_t cost_ns);

#endif
