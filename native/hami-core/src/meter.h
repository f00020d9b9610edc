/*
 * What the launches of this process cost the device: estimated when they are made, corrected when the device tells.
 *
 * A lane is a stream that was launched on. Some launches are timed by themselves, an event before and one after, and teach what their
 * kind costs; what lies between two events of a lane is a span, whose launches' estimates are replaced by the time the device was busy.
 * A span is charged while it runs, so a kernel that takes longer than it ever did closes the gate at once. Launches on a lane that ran
 * dry in between cannot be timed together: their estimates stand, and count as busy just before they were seen. While launches have to
 * wait everything is timed; a program that stays below its share meets two events in a millisecond of GPU time.
 * All charges go through the container's timeline (timeline.h), so overlapping lanes and processes pay for their union.
 *
 * Locks: one mutex, hami_meter_lock(); every function here needs it held but hami_lane_take(). It is never held while sleeping.
 * Fork: hami_meter_forget() in the child; lanes, spans and costs are the parent's.
 */
#ifndef HAMI_METER_H
#define HAMI_METER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gpu_time.h"
#include "hami/cuda_abi.h"
#include "kernel_cost.h"
#include "stamps.h"

/* GPU time and launches that pass on a lane before the clock is read again: a fraction of what the shortest nap gives. */
#define HAMI_LEASE_NS 100000u
#define HAMI_LEASE_LAUNCHES 32u

/* A lane's launches are timed about once in so much GPU time: two events, some microseconds, are then less than a hundredth. */
#define HAMI_SPAN_NS 1000000u

/* After so long a kernel that runs is charged no more until it ends, and nothing waits for it any longer. */
#define HAMI_PATIENCE_NS 10000000000u

struct hami_span {
    struct hami_stamp *from, *to;
    struct hami_kernel *kernel; /* whose only launch it is, or NULL */
    uint64_t marked_ns; /* until when it has been charged; 0: not begun */
    uint64_t prepaid_ns; /* what is left of the estimates */
    uint64_t cost_ns;
    unsigned launches;
    struct hami_span *next;
};

struct hami_lane {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t used; /* launches << 40 | nanoseconds since the clock was read */
    int device;
    bool is_default; /* of a context or thread, where only its own launches may add events */
    CUstream stream;
    struct hami_stamps *stamps;
    struct hami_stamp *tail; /* the last event, from which the launches that follow are timed; NULL when it ran dry */
    uint64_t open_ns; /* estimates of the launches after the tail */
    unsigned open_launches;
    uint64_t untimed_ns; /* estimates since a launch was timed by itself */
    uint64_t granted_ns; /* when the clock was read */
    uint64_t idle_ns; /* when the stream will be empty, by the estimates */
    struct hami_span *first, *last;
};

/* A device as this process uses it. */
struct hami_meter {
    _Atomic uint64_t factor; /* what a nanosecond of a kernel costs, HAMI_ONE for one that overlaps with nothing; 0 stands for that */
    uint64_t queued_ns; /* estimates of spans that the device has not reached */
    unsigned queued_launches;
    uint64_t progress_ns; /* when a span last ended or the queue was empty */
    uint64_t paused_ns; /* when launches last had to wait */
    uint64_t own_ns; /* charged to this process, in all */
};

/* A launch that is timed by itself: between its two events. */
struct hami_timed_launch {
    struct hami_lane *lane;
    struct hami_kernel *kernel;
    struct hami_stamp *from;
    uint64_t lane_id, prepaid_ns;
};

extern struct hami_kernels hami_kernels;
extern struct hami_meter hami_meters[HAMI_DEVICES_MAX];

void hami_meter_lock(void);
void hami_meter_unlock(void);
void hami_meter_forget(void);

/* The lane with an id, or NULL. Needs no lock; a lane never goes away, though its stream may change. */
struct hami_lane *hami_lane_find(uint64_t id);

/* The lane with an id, made anew in place of another if need be. */
struct hami_lane *hami_lane_make(uint64_t id, int device, CUstream stream, CUcontext context);

/* What a launch of that kind is estimated to cost the container; 0 when it is not known. */
static inline uint64_t hami_meter_estimate(const struct hami_meter *meter, const struct hami_kernel *kernel)
{
    uint64_t cost = atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);
    uint64_t factor = atomic_load_explicit(&meter->factor, memory_order_relaxed);

    return cost ? (factor ? cost * factor / HAMI_ONE : cost) + 1 : 0;
}

/* Count a launch against the lane's lease. False: the clock must be read. Needs no lock. */
static inline bool hami_lane_take(struct hami_lane *lane, uint64_t estimate_ns)
{
    uint64_t used = atomic_load_explicit(&lane->used, memory_order_relaxed);

    if ((used & 0xffffffffffu) + estimate_ns > HAMI_LEASE_NS || used >> 40 >= HAMI_LEASE_LAUNCHES)
        return false;
    atomic_fetch_add_explicit(&lane->used, (uint64_t)1 << 40 | estimate_ns, memory_order_relaxed);
    return true;
}

/* Pay for what passed on the lane's lease. */
void hami_lane_settle(struct hami_lane *lane, uint64_t now_ns);

/* Whether the lane's stream has been empty since its last launch, by the estimates. */
bool hami_lane_is_dry(const struct hami_lane *lane, uint64_t now_ns);

/* Pay for a launch and begin a new lease. Its time is taken if `timed->from` is set afterwards: then call hami_lane_end_timed(). */
void hami_lane_launch(struct hami_lane *lane, struct hami_kernel *kernel, uint64_t now_ns, struct hami_timed_launch *timed);
void hami_lane_end_timed(struct hami_timed_launch *timed, bool is_launched, uint64_t now_ns);

/* Record where the open spans of a device end, before launches pause. `current` is the lane whose launch pauses. */
void hami_meter_close_spans(int device, const struct hami_lane *current, uint64_t now_ns);

/* Charge what the device has done since the last call. Returns whether anything is still ahead of it. */
bool hami_meter_collect(int device, uint64_t now_ns);

/* Forget a stream or context that is about to end. */
void hami_meter_end_stream(uint64_t id);
void hami_meter_end_context(CUcontext context);

#endif
