/*
 * What the processes of a container know together about the GPU time they use: a file beside the region.
 *
 * Owns the file `<region>.gputime-3` and its layout; the number changes with the layout, so that two versions of this library never read
 * one another's. Every word is atomic and valid whatever it holds; there is no lock and nothing to repair. Where the file cannot be
 * had each process is held to the limit by itself.
 * Fork: a child keeps its parent's mapping.
 */
#ifndef HAMI_GPU_TIME_H
#define HAMI_GPU_TIME_H

#include <stdint.h>

#include "hami/region.h"
#include "process_turns.h"
#include "scale.h"
#include "timeline.h"

#define HAMI_GPU_TIME_SUFFIX ".gputime-3"

struct hami_gpu_time_device {
    _Atomic uint64_t paid_at; /* the bucket */
    _Atomic uint64_t scale; /* what a busy nanosecond of the timeline costs, HAMI_ONE at most times 2; 0 stands for HAMI_ONE */
    _Atomic uint64_t asker, asked_until_ns; /* the process that compares with NVML, and until when nobody else does */
    /* Of intervals that ended lately: what their launches take one by one, and what they cost together. */
    _Atomic uint64_t alone_ns, cost_ns;
    _Atomic uint64_t charged_ns; /* what the container was charged, in all */
    uint64_t unused;
};

struct hami_gpu_time {
    struct hami_gpu_time_device devices[HAMI_DEVICES_MAX];
    _Atomic uint64_t monitor_asked_at_ns; /* priority.h */
    uint64_t unused[383];
    struct hami_timeline timelines[HAMI_DEVICES_MAX];
    struct hami_process_turns turns[HAMI_DEVICES_MAX];
};

_Static_assert(sizeof(struct hami_gpu_time_device) == 64, "devices share no cache line");
_Static_assert(offsetof(struct hami_gpu_time, timelines) == 4096, "timelines begin on a page of their own");

/* The mapping, made at the first call; NULL when there is no memory for it. Safe in any thread. */
struct hami_gpu_time *hami_gpu_time(void);

#endif
