/*
 * The limiter: whether this container may use the device now. Every launch asks it.
 *
 * Owns the policy: the limit of each device (the region's `sm_limit`, GPU_CORE_UTILIZATION_POLICY and the monitor's
 * `utilization_switch`, which may change at any time), and how long a launch waits. A launch starts while the container's bucket
 * (bucket.h) is not overdrawn and little is queued. Of a kind of launch whose cost is unknown, one is outstanding at a time. But no
 * launch waits for a stream that may wait for it. Work that is captured into a graph never waits. Waiting threads sleep and hold no
 * lock. While another thread is in the driver for the device, a launch pays its estimate and waits for the bucket only. meter.h owns
 * what launches cost, priority.h the monitor's blocks.
 * A launch that need not wait costs some loads, no clock, and rarely a write to shared memory.
 * Fork: call hami_limiter_forget() in the child; limits hold there as in the parent.
 */
#ifndef HAMI_LIMITER_H
#define HAMI_LIMITER_H

#include <stdbool.h>

#include "stream.h"

/* A launch about to be made. `handle` is a function or an executable graph. Sizes that do not matter are 0. */
struct hami_launch {
    CUstream stream;
    bool is_per_thread; /* stream 0 is the thread's own */
    const void *handle;
    uint64_t blocks, threads;
};

/* Wait until the launch may start. If `timed->from` is set afterwards, call hami_limiter_leave() after the launch. */
void hami_limiter_enter(const struct hami_launch *launch, struct hami_timed_launch *timed);
void hami_limiter_leave(struct hami_timed_launch *timed, CUresult result);

/* Note that a host function or a wait for an event is about to be queued on a stream. */
void hami_limiter_note_wait(CUstream stream, bool is_per_thread);

/* Forget a stream or context that is about to end. */
void hami_limiter_end_stream(CUstream stream);
void hami_limiter_end_context(CUcontext context);

void hami_limiter_forget(void);

#endif
