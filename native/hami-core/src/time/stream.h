/*
 * The streams of this process, and which of their launches are timed.
 *
 * A stream has a lease: launches count against it without the clock and without shared memory. When it is used up, it is charged,
 * and events are recorded. About once per millisecond of GPU time a launch is timed alone, between two events. The launches after
 * it are timed together, up to the next event. This needs a stream that has work: if it became idle, launches cannot be timed
 * together, and their estimates are kept. While launches have to wait for the limit, all are timed.
 *
 * Locks: that of the device (meter.h), unless a function says otherwise. Fork: call hami_streams_forget() in the child.
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

/* GPU time and launches on one lease: a fraction of what the shortest wait adds to the bucket. */
#define HAMI_LEASE_NS 100000u
#define HAMI_LEASE_LAUNCHES 64u

/* A launch is timed alone once in this much GPU time. Two events take some microseconds, less than a hundredth of it. */
#define HAMI_INTERVAL_NS 1000000u

#define HAMI_STREAMS_MAX 256u
#define HAMI_STREAM_PROBES 8u

struct hami_stream {
    _Atomic uint64_t id; /* 0: free */
    _Atomic uint64_t used; /* launches << 40 | nanoseconds on the lease */
    _Atomic int device;
    _Atomic unsigned missed_waits; /* of hami_stream_note_wait(), without the lock */
    _Atomic bool is_ended; /* of hami_stream_end(), without the lock */
    bool is_default; /* a context's or a thread's default stream: only its own launches may record events on it */
    CUstream handle;
    struct hami_event_pool *pool;
    struct hami_event *tail; /* the last event, where the open launches begin; NULL if the stream was idle since */
    uint64_t open_ns; /* estimates of the launches after the tail */
    unsigned open_launches;
    uint64_t untimed_ns; /* estimates since a launch was timed alone */
    uint64_t granted_ns; /* when the lease began */
    uint64_t idle_ns; /* when the stream becomes idle, by the estimates */
    struct hami_intervals intervals;
};

/* A launch that is timed alone: what is known between its two events. */
struct hami_timed_launch {
    struct hami_stream *stream;
    int device;
    struct hami_kernel *kernel;
    uint64_t kernel_key; /* its kind: the entry may be another's by now */
    struct hami_event *from; /* NULL: the launch is not timed */
    uint64_t advance_ns; /* of a probe (probes.h); 0: it is none */
    uint64_t stream_id, prepaid_ns;
    uint64_t launched_ns; /* when the driver's call returned */
};

extern struct hami_stream hami_streams[HAMI_STREAMS_MAX];

/* The entries where the stream with an id may be, by probe. */
static inline struct hami_stream *hami_stream_at(uint64_t id, unsigned step)
{
    return &hami_streams[((id * 0x9e3779b97f4a7c15u >> 48) + step) % HAMI_STREAMS_MAX];
}

/* Find the stream with an id, or NULL. Needs no lock: an entry is never freed, though another stream may take it. */
static inline struct hami_stream *hami_stream_find(uint64_t id)
{
    for (unsigned step = 0; step < HAMI_STREAM_PROBES; step++)
        if (atomic_load_explicit(&hami_stream_at(id, step)->id, memory_order_acquire) == id)
            return hami_stream_at(id, step);
    return NULL;
}

/*
 * Note without the lock a wait that was queued, or the end of the stream or of a context: the lock's next holder does what is due.
 * The stream may be unknown.
 */
void hami_stream_miss_wait(uint64_t id);
void hami_stream_miss_end(uint64_t id);

/*
 * Return the stream with an id; if necessary it is made, in place of another. `handle` is 0x1 or 0x2 for the default streams. NULL
 * if there is no entry for it while other devices use theirs.
 */
struct hami_stream *hami_stream_make(uint64_t id, int device, CUstream handle, CUcontext context);

/* Count a launch against the lease. Returns false if the lease is used up. Needs no lock. */
static inline bool hami_stream_take(struct hami_stream *stream, uint64_t estimate_ns)
{
    uint64_t used = atomic_load_explicit(&stream->used, memory_order_relaxed);

    if ((used & 0xffffffffffu) + estimate_ns > HAMI_LEASE_NS || used >> 40 >= HAMI_LEASE_LAUNCHES)
        return false;
    atomic_fetch_add_explicit(&stream->used, (uint64_t)1 << 40 | estimate_ns, memory_order_relaxed);
    return true;
}

/* The stream's device at this moment, with the limit `percent`. */
static inline struct hami_device_now hami_stream_now(const struct hami_stream *stream, unsigned percent, uint64_t now_ns)
{
    return (struct hami_device_now){stream->device, percent, now_ns};
}

/* Charge what was launched on the lease. */
void hami_stream_charge_lease(struct hami_stream *stream, const struct hami_device_now *now);

/*
 * Charge a launch and begin a new lease. If `timed->from` is set afterwards, call hami_stream_end_timed() after the launch. Returns
 * what it paid.
 */
uint64_t hami_stream_launch(struct hami_stream *stream, struct hami_kernel *kernel, const struct hami_device_now *now,
                            struct hami_timed_launch *timed);
void hami_stream_end_timed(struct hami_timed_launch *timed, bool is_launched, const struct hami_device_now *now);

/* Do so without the lock: the launch is not timed, and its estimate is kept. */
void hami_stream_abandon_timed(const struct hami_timed_launch *timed, bool is_launched, const struct hami_device_now *now);

/*
 * Note that a host function or a wait for an event is about to be queued. What is launched later on the stream may wait for
 * anything, so nothing waits for it.
 */
void hami_stream_note_wait(struct hami_stream *stream, const struct hami_device_now *now);

/* Whether a launch would be a probe (probes.h). Behind a host function or an event, the cost is guessed instead. */
static inline bool hami_stream_would_probe(const struct hami_stream *stream, const struct hami_kernel *kernel)
{
    return !atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed) && !hami_intervals_may_wait(&stream->intervals);
}

/*
 * Whether a probe of a kind runs, or is on the stream `current`. One on another stream that has not begun may wait for this one, so
 * nothing waits for it.
 */
bool hami_streams_run_probe(const struct hami_kernel *kernel, const struct hami_stream *current);

/*
 * Before launches pause: end the leases of a device, and record the ends of its open launches. `current` is the stream that pauses.
 */
void hami_streams_pause(const struct hami_device_now *now, const struct hami_stream *current);

/* Charge what a device has done since the last call. Returns whether anything is still queued. */
bool hami_streams_collect(const struct hami_device_now *now);

/* Whether there ever were streams on a device. Needs no lock. */
bool hami_streams_are_on(int device);

/* Forget a stream, or the streams of a context, that is about to end. */
void hami_stream_end(uint64_t id, int device);
void hami_streams_end_context(CUcontext context, int device);

void hami_streams_forget(void);

#endif
