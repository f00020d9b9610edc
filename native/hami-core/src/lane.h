/*
 * The streams this process launches on, and which of their launches are timed.
 *
 * A launch passes on its lane's lease, for which neither the clock nor any shared memory is touched. When the lease is used up it is
 * paid for, and events are recorded: about once in a millisecond of GPU time a launch is timed by itself, an event before and one after,
 * and those that follow it are timed together up to the next event. That holds while the stream has work; launches on one that ran dry
 * in between cannot be timed together, and their estimates stand. While launches have to wait for the limit everything is timed.
 *
 * Locks: the meter's, but for what says otherwise. Fork: the parent's; hami_lanes_forget() in the child.
 */
#ifndef HAMI_LANE_H
#define HAMI_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hami/cuda_abi.h"
#include "meter.h"
#include "span.h"

/* GPU time and launches that pass on a lane before the clock is read again: a fraction of what the shortest nap gives. */
#define HAMI_LEASE_NS 100000u
#define HAMI_LEASE_LAUNCHES 32u

/* A lane's launches are timed about once in so much GPU time: two events, some microseconds, are then less than a hundredth. */
#define HAMI_SPAN_NS 1000000u

#define HAMI_LANES_MAX 256u
#define HAMI_LANE_REACH 8u

struct hami_lane {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t used; /* launches << 40 | nanoseconds on the lease */
    int device;
    bool is_default; /* a context's or thread's own stream, where only its own launches may add events */
    CUstream stream;
    struct hami_stamps *stamps;
    struct hami_stamp *tail; /* the last event, from which the launches that follow are timed; NULL when it ran dry */
    uint64_t open_ns; /* estimates of the launches after the tail */
    unsigned open_launches;
    uint64_t untimed_ns; /* estimates since a launch was timed by itself */
    uint64_t granted_ns; /* when the lease began */
    uint64_t idle_ns; /* when the stream will be empty, by the estimates */
    struct hami_spans spans;
};

/* A launch that is timed by itself: what is known between its two events. */
struct hami_timed_launch {
    struct hami_lane *lane;
    struct hami_kernel *kernel;
    struct hami_stamp *from; /* NULL: it is not */
    uint64_t lane_id, prepaid_ns;
};

extern struct hami_lane hami_lanes[HAMI_LANES_MAX];

/* Where a lane with that id is looked for, step by step. */
static inline struct hami_lane *hami_lane_place(uint64_t id, unsigned step)
{
    return &hami_lanes[((id * 0x9e3779b97f4a7c15u >> 48) + step) % HAMI_LANES_MAX];
}

/* The lane with an id, or NULL. Needs no lock; a lane never goes away, though its stream may change. */
static inline struct hami_lane *hami_lane_find(uint64_t id)
{
    for (unsigned step = 0; step < HAMI_LANE_REACH; step++)
        if (atomic_load_explicit(&hami_lane_place(id, step)->id, memory_order_acquire) == id)
            return hami_lane_place(id, step);
    return NULL;
}

/* The lane with an id, made anew in place of another if need be. `stream` is 0x1 or 0x2 for the default ones. */
struct hami_lane *hami_lane_make(uint64_t id, int device, CUstream stream, CUcontext context);

/* Count a launch against the lease. False: it is used up. Needs no lock. */
static inline bool hami_lane_take(struct hami_lane *lane, uint64_t estimate_ns)
{
    uint64_t used = atomic_load_explicit(&lane->used, memory_order_relaxed);

    if ((used & 0xffffffffffu) + estimate_ns > HAMI_LEASE_NS || used >> 40 >= HAMI_LEASE_LAUNCHES)
        return false;
    atomic_fetch_add_explicit(&lane->used, (uint64_t)1 << 40 | estimate_ns, memory_order_relaxed);
    return true;
}

/* Pay for what passed on the lease. */
void hami_lane_settle(struct hami_lane *lane, uint64_t now_ns);

/* Pay for a launch and begin a new lease. When `timed->from` is set afterwards call hami_lane_end_timed() after the launch. */
void hami_lane_launch(struct hami_lane *lane, struct hami_kernel *kernel, uint64_t now_ns, struct hami_timed_launch *timed);
void hami_lane_end_timed(struct hami_timed_launch *timed, bool is_launched, uint64_t now_ns);

/* End the leases of a device and record where its open spans end, before launches pause. `current` is the lane that pauses. */
void hami_lanes_pause(int device, const struct hami_lane *current, uint64_t now_ns);

#define HAMI_ALL_DEVICES (-1)

/* Pay for what a device, or each, has done since the last call. Returns whether anything is still ahead of it. */
bool hami_lanes_collect(int device, uint64_t now_ns);

/* Forget a stream or context that is about to end. */
void hami_lane_end(uint64_t id);
void hami_lanes_end_context(CUcontext context);

void hami_lanes_forget(void);

#endif
