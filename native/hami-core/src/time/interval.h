/*
 * Intervals of a stream between two events, and what their launches cost.
 *
 * The launches of an interval are charged by estimates first, and then by the time the device was busy. That is charged while the
 * interval runs, so a kernel that is longer than ever before delays the next launch at once. An interval of one launch teaches the
 * cost of its kind. A queue holds the intervals of one stream in order.
 * Locks: the meter's. Fork: call hami_intervals_forget() in the child.
 */
#ifndef HAMI_INTERVAL_H
#define HAMI_INTERVAL_H

#include <stdbool.h>
#include <stdint.h>

#include "event_pool.h"
#include "kernel_cost.h"
#include "meter.h"

struct hami_interval {
    struct hami_event *from, *to;
    struct hami_kernel *kernel; /* of the only launch, or NULL */
    uint64_t kernel_key; /* its kind: the entry may be another's by now */
    uint64_t advance_ns; /* of a probe (probes.h); 0: it is none */
    uint64_t not_before_ns; /* no work of the interval began earlier; 0 if that is unknown */
    uint64_t paid_until_ns; /* 0: not begun */
    uint64_t others_ns; /* what the container's other processes had been charged at its start */
    uint64_t estimate_ns; /* all estimates of its launches */
    uint64_t alone_ns; /* what its launches cost one by one */
    uint64_t queued_ns; /* estimates of what the device has not done */
    uint64_t prepaid_ns, standing_ns; /* what is left of the estimates that are replaced, and of those that are kept */
    uint64_t due_ns; /* its cost so far beyond the estimates that are replaced */
    bool is_aside; /* it runs for so long that launches do not wait for it */
    uint64_t cost_ns, own_ns; /* its cost so far, and what it would be for this process alone */
    unsigned launches;
    uint64_t waits; /* how many were queued before it */
    struct hami_interval *next;
};

/*
 * The queue counts for the device (struct hami_meter) while it moves on by itself. It does not while its stream has a host function
 * or another stream's event ahead, or did not move for HAMI_PATIENCE_NS although it was not the device that was busy with others.
 */
struct hami_intervals {
    struct hami_interval *first, *last;
    uint64_t queued_ns;
    unsigned queued_launches;
    unsigned probes;
    uint64_t waits, passed_waits; /* host functions and events that were queued, and that the device has passed for certain */
    uint64_t moved_ns; /* when the first interval began, or became the first */
    bool is_uncounted;
};

/* Note that a host function, or a wait for an event, is queued behind the queue. */
void hami_intervals_note_wait(struct hami_intervals *intervals, int device);

/* Whether such a wait may be ahead. */
static inline bool hami_intervals_may_wait(const struct hami_intervals *intervals)
{
    return intervals->waits != intervals->passed_waits;
}

/* Whether a probe of a kind is among the intervals; or only whether it is the first, and the device has begun it. */
bool hami_intervals_have_probe(const struct hami_intervals *intervals, uint64_t kernel_key);
bool hami_intervals_run_probe(const struct hami_intervals *intervals, uint64_t kernel_key);

/* Add an interval. Takes over the caller's `from` and holds `to`. */
void hami_interval_add(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_interval *interval);

/*
 * Charge what the device has done of the queue since the last call. The context of its events must be current. Finished intervals
 * leave the queue. If the last of them ends with `tail`, its end is stored in `*idle_ns`.
 */
void hami_intervals_collect(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_event *tail,
                            uint64_t *idle_ns);

/* Drop the queue and keep the estimates. Kinds of unknown cost stay unknown, and their next launch is timed instead. */
void hami_intervals_drop(struct hami_intervals *intervals, int device);

void hami_intervals_forget(void);

#endif
