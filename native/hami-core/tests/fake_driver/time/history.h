/*
 * How much of the past a device was busy, in shared memory.
 *
 * A history maps a time to the busy time until then. It keeps the points where that function bends. Of the points within one
 * millisecond it keeps the first and the last, so it is exact at whole milliseconds. The oldest points are forgotten. The newest
 * interval is kept apart, because it may still grow. All zeros is an empty history. The caller holds the lock.
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
    struct history_point start, end; /* of the newest interval */
    uint64_t appended;
    struct history_point points[HISTORY_POINTS];
};

void history_clear(struct history *history);

/* Add a busy interval, which must not begin before anything added so far. */
void history_add(struct history *history, uint64_t from_ns, uint64_t to_ns);

/* Return the busy nanoseconds until a time. */
uint64_t history_busy_ns(const struct history *history, uint64_t at_ns);

#endif
