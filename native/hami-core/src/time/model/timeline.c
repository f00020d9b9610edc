#include "timeline.h"

#include <stdatomic.h>

#define SLICES_MASK (((uint64_t)1 << HAMI_SLICES_PER_WORD) - 1)

/* A part of one word: its number, counted from the clock's zero, and the slices in it. */
struct piece {
    uint64_t word;
    uint64_t mask;
};

static uint64_t nearest_slice(uint64_t ns)
{
    return (ns + HAMI_SLICE_NS / 2) / HAMI_SLICE_NS;
}

static struct piece piece_at(uint64_t slice, uint64_t end)
{
    uint64_t word = slice / HAMI_SLICES_PER_WORD, first = slice % HAMI_SLICES_PER_WORD, count = HAMI_SLICES_PER_WORD - first;

    if (end - slice < count)
        count = end - slice;
    return (struct piece){word, (((uint64_t)1 << count) - 1) << first};
}

static uint64_t lap_of(uint64_t word)
{
    return (word / HAMI_TIMELINE_WORDS) << HAMI_SLICES_PER_WORD;
}

/*
 * Mark slices, and return those that were unmarked. If the word has moved on to a later lap, all count as unmarked and none is
 * marked.
 */
static uint64_t mark_piece(_Atomic uint64_t *word, struct piece piece)
{
    uint64_t lap = lap_of(piece.word), before = atomic_load_explicit(word, memory_order_relaxed), kept, after;

    do {
        int16_t ahead = (int16_t)((before >> HAMI_SLICES_PER_WORD) - (lap >> HAMI_SLICES_PER_WORD));

        if (ahead == 1)
            return piece.mask;
        kept = ahead == 0 ? before & SLICES_MASK : 0;
        after = lap | kept | piece.mask;
    } while (after != before &&
             !atomic_compare_exchange_weak_explicit(word, &before, after, memory_order_relaxed, memory_order_relaxed));
    return piece.mask & ~kept;
}

uint64_t hami_timeline_mark(struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t from = nearest_slice(from_ns), to = nearest_slice(to_ns), slices = 0;

    if (to > from + HAMI_TIMELINE_NS / HAMI_SLICE_NS) {
        slices = to - HAMI_TIMELINE_NS / HAMI_SLICE_NS - from;
        from += slices;
    }
    while (from < to) {
        struct piece piece = piece_at(from, to);

        slices += (uint64_t)__builtin_popcountll(mark_piece(&timeline->words[piece.word % HAMI_TIMELINE_WORDS], piece));
        from = (piece.word + 1) * HAMI_SLICES_PER_WORD;
    }
    return slices * HAMI_SLICE_NS;
}

uint64_t hami_timeline_busy_ns(const struct hami_timeline *timeline, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t from = nearest_slice(from_ns), to = nearest_slice(to_ns), slices = 0;

    if (to > from + HAMI_TIMELINE_NS / HAMI_SLICE_NS)
        from = to - HAMI_TIMELINE_NS / HAMI_SLICE_NS;
    while (from < to) {
        struct piece piece = piece_at(from, to);
        uint64_t word = atomic_load_explicit(&timeline->words[piece.word % HAMI_TIMELINE_WORDS], memory_order_relaxed);

        if ((word & ~SLICES_MASK) == lap_of(piece.word))
            slices += (uint64_t)__builtin_popcountll(word & piece.mask);
        from = (piece.word + 1) * HAMI_SLICES_PER_WORD;
    }
    return slices * HAMI_SLICE_NS;
}
