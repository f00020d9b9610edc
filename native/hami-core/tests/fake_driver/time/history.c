#include "time/history.h"

#define BUCKET_NS 1000000u

static struct history_point *point(struct history *history, uint64_t index)
{
    return &history->points[index % HISTORY_POINTS];
}

static uint64_t bucket(const struct history_point *point)
{
    return point->at_ns / BUCKET_NS;
}

static void append(struct history *history, struct history_point fresh)
{
    uint64_t count = history->appended;

    if (count >= 2 && bucket(point(history, count - 1)) == bucket(&fresh) && bucket(point(history, count - 2)) == bucket(&fresh))
        count--;
    *point(history, count) = fresh;
    history->appended = count + 1;
}

void history_clear(struct history *history)
{
    history->start = history->end = (struct history_point){0, 0};
    history->appended = 0;
}

void history_add(struct history *history, uint64_t from_ns, uint64_t to_ns)
{
    if (from_ns != history->end.at_ns) {
        append(history, history->start);
        append(history, history->end);
        history->start = (struct history_point){from_ns, history->end.busy_ns};
        history->end = history->start;
    }
    history->end.busy_ns += to_ns - from_ns;
    history->end.at_ns = to_ns;
}

/* Interpolate between two points. */
static uint64_t between(const struct history_point *from, const struct history_point *to, uint64_t at_ns)
{
    if (to->at_ns == from->at_ns)
        return to->busy_ns;
    return from->busy_ns +
           (uint64_t)((unsigned __int128)(at_ns - from->at_ns) * (to->busy_ns - from->busy_ns) / (to->at_ns - from->at_ns));
}

uint64_t history_busy_ns(const struct history *history, uint64_t at_ns)
{
    uint64_t after = history->appended;
    uint64_t oldest = after > HISTORY_POINTS ? after - HISTORY_POINTS : 0;
    uint64_t first = oldest;

    if (at_ns >= history->end.at_ns)
        return history->end.busy_ns;
    if (at_ns >= history->start.at_ns)
        return between(&history->start, &history->end, at_ns);
    while (first < after) {
        uint64_t middle = first + (after - first) / 2;

        if (history->points[middle % HISTORY_POINTS].at_ns <= at_ns)
            first = middle + 1;
        else
            after = middle;
    }
    if (first == oldest)
        return first < history->appended ? history->points[first % HISTORY_POINTS].busy_ns : history->start.busy_ns;
    return between(&history->points[(first - 1) % HISTORY_POINTS],
                   first < history->appended ? &history->points[first % HISTORY_POINTS] : &history->start, at_ns);
}
