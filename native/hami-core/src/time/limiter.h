/*
 * The gate before every launch: whether this container may use the device now.
 *
 * Owns the policy: which device is limited to what (the region's `sm_limit`, read anew all the time; GPU_CORE_UTILIZATION_POLICY; the
 * monitor's `utilization_switch`), and how long a launch waits. A launch passes while the container's bucket (bucket.h) is not overdrawn
 * and little is queued; a kind of launch whose cost is not known passes alone. Work that is captured into a graph never waits.
 * Waiting threads sleep and hold no lock. What launches cost is meter.h's concern, the monitor's blocks are priority.h's.
 * An open gate costs some loads and no clock; it writes shared memory only when there is news.
 * Fork: call hami_limiter_forget() in the child; limits hold there as in the parent.
 */
#ifndef HAMI_LIMITER_H
#define HAMI_LIMITER_H

#include <stdbool.h>

#include "stream.h"

/* A launch about to be made. `handle` is a function or an executable graph; sizes that do not matter are 0. */
struct hami_launch {
    CUstream stream;
    bool is_per_thread; /* whether stream 0 is the thread's */
    const void *handle;
    uint64_t blocks, threads;
};

/* Pass the gate. Call hami_limiter_leave() after the launch if `timed->from` is set then. */
void hami_limiter_enter(const struct hami_launch *launch, struct hami_timed_launch *timed);
void hami_limiter_leave(struct hami_timed_launch *timed, CUresult result);

/* A stream or context is about to end: nothing of it may be asked again. */
void hami_limiter_end_stream(CUstream stream);
void hami_limiter_end_context(CUcontext context);

void hami_limiter_forget(void);

#endif
