/*
 * How much of the past a device was busy, in memory that processes share.
 *
 * A history is the function from the clock to the busy time so far, kept as the points where it bends. Of the points within one
 * millisecond the first and the last are kept, so it is exact at whole milliseconds; the oldest are forgotten. The newest stretch of
 * busy time is kept apart, because it may still grow. All zeros is an empty history. Locks are the caller's.
 */
#ifndef FAKE_HISTORY_H
#define FAKE_HISTORY_H

#include <stdint.h>

enum { HISTORY_POINTS = 1 << 18 };

struct history_point {
    uint64_t at_ns;
    uint64_t busy_ns;
};

struct history {
    struct history_point start, end; /* of the newest stretch */
    uint64_t appended;
    struct history_point points[HISTORY_POINTS];
};

void history_clear(struct history *history);

/* Busy from `from_ns` to `to_ns`, which is not before anything added so far. */
void history_add(struct history *history, uint64_t from_ns, uint64_t to_ns);

/* Busy nanoseconds up to a moment. */
uint64_t history_busy_ns(const struct history *history, uint64_t at_ns);

#endif
