/*
 * Stretches of a stream between two events, whose launches' estimates are replaced by the time the device was busy.
 *
 * A span is paid while it runs, so a kernel that takes longer than it ever did closes the gate at once. A span of one launch teaches
 * what its kind costs. A queue holds one stream's spans in their order.
 * Locks: the meter's. Fork: the parent's; hami_intervals_forget() in the child.
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
    struct hami_kernel *kernel; /* whose only launch it is, or NULL */
    uint64_t paid_until_ns; /* 0: not begun */
    uint64_t others_ns; /* what the container's other processes had been charged when it was made */
    uint64_t estimate_ns; /* what it was estimated to cost */
    uint64_t alone_ns; /* what the launches take by themselves */
    uint64_t queued_ns; /* what is left of the estimates */
    uint64_t prepaid_ns, standing_ns; /* what is left of the parts that are replaced and that stand */
    uint64_t cost_ns, own_ns; /* what it came to for the container, and for the process */
    unsigned launches;
    struct hami_interval *next;
};

struct hami_intervals {
    struct hami_interval *first, *last;
};

/* Add a span. Takes over the caller's `from` and holds `to`. */
void hami_interval_add(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_interval *interval);

/*
 * Pay for what the device has done of the queue since the last call; the spans' context is current. Spans that ended leave the queue;
 * the last one's end, if it has `tail` for its end, is stored in `idle_ns`.
 */
void hami_intervals_collect(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_event *tail,
                            uint64_t *idle_ns);

/* Forget the queue: what was estimated stands. */
void hami_intervals_drop(struct hami_intervals *intervals, int device);

void hami_intervals_forget(void);

#endif
