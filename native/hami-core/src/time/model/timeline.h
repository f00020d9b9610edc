/*
 * When a device was busy for a container: a timeline of short slices that all its processes mark, and who marks a slice first pays it.
 *
 * So the intervals of overlapping streams and of time-sliced processes add up to their union, whoever reports them and in whatever
 * order; a process that dies leaves marks that are true. The timeline is a ring of words, each with the number of its lap, so that
 * nothing needs to be cleared: a word of another lap is empty. Any content is valid. Pure: no clock, no lock, no device.
 * All times are nanoseconds of CLOCK_MONOTONIC.
 */
#ifndef HAMI_TIMELINE_H
#define HAMI_TIMELINE_H

#include <stdint.h>

/* Edges are rounded to slices, evenly up and down: the shortest kernels last a few of them. */
#define HAMI_SLICE_NS 1024u
/* The rest of a word's bits number the lap. */
#define HAMI_SLICES_PER_WORD 48u
/* 1.6 s: longer than NVML's longest window and the time until it shows. */
#define HAMI_TIMELINE_WORDS 32768u
#define HAMI_TIMELINE_NS ((uint64_t)HAMI_TIMELINE_WORDS * HAMI_SLICES_PER_WORD * HAMI_SLICE_NS)

struct hami_timeline {
    _Atomic uint64_t words[HAMI_TIMELINE_WORDS];
};

/* Mark [from, to) busy. Returns how much of it nobody had marked; what is too old for the ring counts as unmarked. */
uint64_t hami_timeline_mark(struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns);

/* How much of [from, to) is marked. */
uint64_t hami_timeline_busy_ns(const struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns);

#endif
