/*
 * The streams this process launches on, and which of their launches are timed.
 *
 * A launch passes on its lane's lease, for which neither the clock nor any shared memory is touched. When the lease is used up it is
 * paid for, and events are recorded: about once in a millisecond of GPU time a launch is timed by itself, an event before and one after,
 * and those that follow it are timed together up to the next event. That holds while the stream has work; launches on one that ran dry
 * in between cannot be timed together, and their estimates stand. While launches have to wait for the limit everything is timed.
 *
 * Locks: the meter's, but for what says otherwise. Fork: the parent's; hami_streams_forget() in the child.
 */
#ifndef HAMI_STREAM_H
#define HAMI_STREAM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hami/cuda_abi.h"
#include "interval.h"
#include "meter.h"

/* GPU time and launches that pass on a lane before the clock is read again: a fraction of what the shortest nap gives. */
#define HAMI_LEASE_NS 100000u
#define HAMI_LEASE_LAUNCHES 32u

/* A lane's launches are timed about once in so much GPU time: two events, some microseconds, are then less than a hundredth. */
#define HAMI_INTERVAL_NS 1000000u

#define HAMI_STREAMS_MAX 256u
#define HAMI_STREAM_REACH 8u

struct hami_stream {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t used; /* launches << 40 | nanoseconds on the lease */
    int device;
    bool is_default; /* a context's or thread's own stream, where only its own launches may add events */
    CUstream handle;
    struct hami_event_pool *pool;
    struct hami_event *tail; /* the last event, from which the launches that follow are timed; NULL when it ran dry */
    uint64_t open_ns; /* estimates of the launches after the tail */
    unsigned open_launches;
    uint64_t untimed_ns; /* estimates since a launch was timed by itself */
    uint64_t granted_ns; /* when the lease began */
    uint64_t idle_ns; /* when the stream will be empty, by the estimates */
    struct hami_intervals intervals;
};

/* A launch that is timed by itself: what is known between its two events. */
struct hami_timed_launch {
    struct hami_stream *stream;
    struct hami_kernel *kernel;
    struct hami_event *from; /* NULL: it is not */
    uint64_t stream_id, prepaid_ns;
};

extern struct hami_stream hami_streams[HAMI_STREAMS_MAX];

/* Where a lane with that id is looked for, step by step. */
static inline struct hami_stream *hami_stream_place(uint64_t id, unsigned step)
{
    return &hami_streams[((id * 0x9e3779b97f4a7c15u >> 48) + step) % HAMI_STREAMS_MAX];
}

/* The lane with an id, or NULL. Needs no lock; a lane never goes away, though its stream may change. */
static inline struct hami_stream *hami_stream_find(uint64_t id)
{
    for (unsigned step = 0; step < HAMI_STREAM_REACH; step++)
        if (atomic_load_explicit(&hami_stream_place(id, step)->id, memory_order_acquire) == id)
            return hami_stream_place(id, step);
    return NULL;
}

/* The lane with an id, made anew in place of another if need be. `stream` is 0x1 or 0x2 for the default ones. */
struct hami_stream *hami_stream_make(uint64_t id, int device, CUstream handle, CUcontext context);

/* Count a launch against the lease. False: it is used up. Needs no lock. */
static inline bool hami_stream_take(struct hami_stream *stream, uint64_t estimate_ns)
{
    uint64_t used = atomic_load_explicit(&stream->used, memory_order_relaxed);

    if ((used & 0xffffffffffu) + estimate_ns > HAMI_LEASE_NS || used >> 40 >= HAMI_LEASE_LAUNCHES)
        return false;
    atomic_fetch_add_explicit(&stream->used, (uint64_t)1 << 40 | estimate_ns, memory_order_relaxed);
    return true;
}

/* The stream's device now, under the limit `percent`. */
static inline struct hami_device_now hami_stream_now(const struct hami_stream *stream, unsigned percent, uint64_t now_ns)
{
    return (struct hami_device_now){stream->device, percent, now_ns};
}

/* Pay for what passed on the lease. */
void hami_stream_settle(struct hami_stream *stream, const struct hami_device_now *now);

/* Pay for a launch and begin a new lease. When `timed->from` is set afterwards call hami_stream_end_timed() after the launch. */
void hami_stream_launch(struct hami_stream *stream, struct hami_kernel *kernel, const struct hami_device_now *now,
                        struct hami_timed_launch *timed);
void hami_stream_end_timed(struct hami_timed_launch *timed, bool is_launched, const struct hami_device_now *now);

/* End the leases of a device and record where its open intervals end, before launches pause. `current` is the stream that pauses. */
void hami_streams_pause(const struct hami_device_now *now, const struct hami_stream *current);

#define HAMI_ALL_DEVICES (-1)

/* Pay for what a device, or each, has done since the last call. Returns whether anything is still ahead of it. */
bool hami_streams_collect(int device, const struct hami_limits *limits, uint64_t now_ns);

/* Forget a stream or context that is about to end. */
void hami_stream_end(uint64_t id);
void hami_streams_end_context(CUcontext context);

void hami_streams_forget(void);

#endif
