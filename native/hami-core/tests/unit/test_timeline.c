/*
 * Marked time adds up to the union of what is marked, by any process and in any order.
 */
#include "timeline.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MS 1000000u
#define NOW (5000ull * 1000 * MS)

enum { ROUNDS = 200, INTERVALS = 40, SPAN_SLICES = 4000, THREADS = 4 };

static struct hami_timeline timeline;

static void empty(void)
{
    memset(&timeline, 0, sizeof(timeline));
}

static uint64_t at_slice(uint64_t slice)
{
    return NOW / HAMI_SLICE_NS * HAMI_SLICE_NS + slice * HAMI_SLICE_NS;
}

static void random_intervals_add_up_to_their_union(void)
{
    for (int round = 0; round < ROUNDS; round++) {
        unsigned char is_busy[SPAN_SLICES] = {0};
        uint64_t paid = 0, expected = 0;

        empty();
        for (int index = 0; index < INTERVALS; index++) {
            uint64_t from = (uint64_t)rand() % SPAN_SLICES, to = from + (uint64_t)rand() % (SPAN_SLICES - from);

            memset(is_busy + from, 1, to - from);
            paid += hami_timeline_mark(&timeline, at_slice(from), at_slice(to));
        }
        for (int slice = 0; slice < SPAN_SLICES; slice++)
            expected += is_busy[slice] * HAMI_SLICE_NS;
        CHECK_EQUAL(expected, paid);
        CHECK_EQUAL(expected, hami_timeline_busy_ns(&timeline, at_slice(0), at_slice(SPAN_SLICES)));
    }
}

static void short_kernels_are_paid_in_full_on_average(void)
{
    uint64_t paid = 0;

    empty();
    for (uint64_t index = 0; index < 10000; index++)
        paid += hami_timeline_mark(&timeline, NOW + index * 30011, NOW + index * 30011 + 20000);
    CHECK(paid > 199000000 && paid < 201000000);
}

static void nothing_is_left_of_earlier_laps(void)
{
    empty();
    CHECK_EQUAL(MS / HAMI_SLICE_NS * HAMI_SLICE_NS, hami_timeline_mark(&timeline, at_slice(0), at_slice(MS / HAMI_SLICE_NS)));
    CHECK_EQUAL(0, hami_timeline_busy_ns(&timeline, at_slice(0) + HAMI_TIMELINE_NS, at_slice(100) + HAMI_TIMELINE_NS));
    CHECK_EQUAL(100 * HAMI_SLICE_NS,
                hami_timeline_mark(&timeline, at_slice(0) + HAMI_TIMELINE_NS, at_slice(100) + HAMI_TIMELINE_NS));
}

static void what_the_ring_no_longer_holds_is_paid_once_more(void)
{
    empty();
    hami_timeline_mark(&timeline, at_slice(0) + HAMI_TIMELINE_NS, at_slice(50) + HAMI_TIMELINE_NS);
    CHECK_EQUAL(50 * HAMI_SLICE_NS, hami_timeline_mark(&timeline, at_slice(0), at_slice(50)));
    CHECK_EQUAL(50 * HAMI_SLICE_NS,
                hami_timeline_busy_ns(&timeline, at_slice(0) + HAMI_TIMELINE_NS, at_slice(50) + HAMI_TIMELINE_NS));
}

static void kernel_longer_than_the_ring_is_paid_in_full(void)
{
    uint64_t slices = 3 * HAMI_TIMELINE_NS / HAMI_SLICE_NS;

    empty();
    CHECK_EQUAL(slices * HAMI_SLICE_NS, hami_timeline_mark(&timeline, at_slice(0), at_slice(slices)));
    CHECK_EQUAL(0, hami_timeline_mark(&timeline, at_slice(slices - 100), at_slice(slices)));
}

static void any_content_is_a_timeline(void)
{
    unsigned char *bytes = (unsigned char *)&timeline;

    for (size_t index = 0; index < sizeof(timeline); index++)
        bytes[index] = (unsigned char)rand();
    CHECK(hami_timeline_busy_ns(&timeline, NOW, NOW + 1000 * MS) <= 1001 * MS);
    CHECK(hami_timeline_mark(&timeline, NOW, NOW + 1000 * MS) <= 1001 * MS);
    CHECK(hami_timeline_busy_ns(&timeline, NOW, NOW + 1000 * MS) > 990 * MS);
}

static void *mark_all(void *paid)
{
    for (uint64_t slice = 0; slice < 20000; slice += 7)
        *(uint64_t *)paid += hami_timeline_mark(&timeline, at_slice(slice), at_slice(slice + 20));
    return NULL;
}

static void threads_share_the_price(void)
{
    pthread_t threads[THREADS];
    uint64_t paid[THREADS] = {0}, sum = 0;

    empty();
    for (int index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, mark_all, &paid[index]);
    for (int index = 0; index < THREADS; index++) {
        pthread_join(threads[index], NULL);
        sum += paid[index];
    }
    CHECK_EQUAL(hami_timeline_busy_ns(&timeline, at_slice(0), at_slice(30000)), sum);
}

int main(void)
{
    srand(1);
    random_intervals_add_up_to_their_union();
    short_kernels_are_paid_in_full_on_average();
    nothing_is_left_of_earlier_laps();
    what_the_ring_no_longer_holds_is_paid_once_more();
    kernel_longer_than_the_ring_is_paid_in_full();
    any_content_is_a_timeline();
    threads_share_the_price();
    return check_failures();
}
