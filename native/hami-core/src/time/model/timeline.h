/*
 * When a device was busy for a container: a timeline of short slices that all its processes mark. The first to mark a slice is
 * charged for it.
 *
 * So overlapping streams and processes are charged for the union of their intervals, in whatever order they report. Marks stay true
 * when a process dies. The timeline is a ring of words. Each has the number of its lap, so nothing needs to be cleared: a word of
 * another lap is empty. Any content is valid. All times are nanoseconds of CLOCK_MONOTONIC. Pure: no clock, no lock, no device.
 */
#ifndef HAMI_TIMELINE_H
#define HAMI_TIMELINE_H

#include <stdint.h>

/* Both ends are rounded to the nearest slice. The shortest kernels last a few slices. */
#define HAMI_SLICE_NS 1024u
/* The other bits of a word number the lap. */
#define HAMI_SLICES_PER_WORD 48u
/* 1.6 s: longer than NVML's longest window and its delay. */
#define HAMI_TIMELINE_WORDS 32768u
#define HAMI_TIMELINE_NS ((uint64_t)HAMI_TIMELINE_WORDS * HAMI_SLICES_PER_WORD * HAMI_SLICE_NS)

struct hami_timeline {
    _Atomic uint64_t words[HAMI_TIMELINE_WORDS];
};

/* Mark [from, to) busy. Returns how much of it was unmarked; what is too old for the ring counts as unmarked. */
uint64_t hami_timeline_mark(struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns);

/* Return how much of [from, to) is marked. */
uint64_t hami_timeline_busy_ns(const struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns);

#endif
