/*
 * What the processes of a container share about GPU time: a file beside the region.
 *
 * Owns the file `<region>.gputime-3` and its layout. The number changes with the layout, so that versions of this library with
 * different layouts never share a file. Every word is atomic and valid with any content, so there is no lock and nothing to repair.
 * If the file cannot be used, the limit holds for each process by itself.
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
    _Atomic uint64_t paid_at; /* bucket.h */
    _Atomic uint64_t scale; /* scale.h: at most 2 * HAMI_ONE; 0 stands for HAMI_ONE */
    _Atomic uint64_t asker, asked_until_ns; /* the process that asks NVML, and until when no other does */
    /* Sums over recent intervals: what their launches cost one by one, and together. */
    _Atomic uint64_t alone_ns, cost_ns;
    _Atomic uint64_t charged_ns; /* all that the container was charged */
    _Atomic uint64_t long_run; /* long_run.h */
};

struct hami_gpu_time {
    struct hami_gpu_time_device devices[HAMI_DEVICES_MAX];
    _Atomic uint64_t monitor_asked_at_ns; /* priority.h */
    _Atomic uint64_t paid_at_beside[HAMI_DEVICES_MAX]; /* meter.h: a second bucket of each device */
    _Atomic uint64_t probes_paid_at[HAMI_DEVICES_MAX]; /* meter.h: a bucket of each device for launches of unknown cost */
    uint64_t unused[383 - 2 * HAMI_DEVICES_MAX];
    struct hami_timeline timelines[HAMI_DEVICES_MAX];
    struct hami_process_turns turns[HAMI_DEVICES_MAX];
};

_Static_assert(sizeof(struct hami_gpu_time_device) == 64, "devices share no cache line");
_Static_assert(offsetof(struct hami_gpu_time, timelines) == 4096, "timelines begin on a page of their own");

/* Return the mapping, made at the first call; NULL if there is no memory for it. Safe in any thread. */
struct hami_gpu_time *hami_gpu_time(void);

#endif
