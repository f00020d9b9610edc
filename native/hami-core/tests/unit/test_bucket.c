/*
 * A container's share of a device's time holds, for any behaviour of its processes and any content of the word.
 */
#include "bucket.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define MS 1000000u
#define SECOND 1000000000u
#define NOW (1000ull * SECOND)

/* Run kernels of random lengths up to `longest` back to back for a minute. Returns the busy time in thousandths. */
static unsigned long long busy_permille(unsigned percent, uint64_t longest)
{
    _Atomic uint64_t word = 0;
    uint64_t now = NOW, busy = 0, length;

    srand(percent + (unsigned)longest);
    while (now < NOW + 60ull * SECOND) {
        now += hami_bucket_wait_ns(&word, now);
        length = 1 + (uint64_t)rand() % longest;
        hami_bucket_debit(&word, now, (int64_t)length, percent);
        now += length;
        busy += length;
    }
    return busy * 1000 / (now - NOW);
}

static void share_is_exact_over_a_minute(void)
{
    static const unsigned percents[] = {1, 5, 10, 25, 30, 50, 75, 90, 99};
    static const uint64_t longest[] = {20000, MS, 10 * MS, 100 * MS};

    for (size_t row = 0; row < sizeof(percents) / sizeof(percents[0]); row++)
        for (size_t kind = 0; kind < sizeof(longest) / sizeof(longest[0]); kind++) {
            long long error = (long long)busy_permille(percents[row], longest[kind]) - 10ll * percents[row];

            CHECK(error >= -5 && error <= 5);
        }
}

static void unused_time_is_kept_for_one_burst(void)
{
    _Atomic uint64_t word = 0;

    hami_bucket_debit(&word, NOW, 50 * MS, 50);
    CHECK_EQUAL(0, hami_bucket_wait_ns(&word, NOW));
    CHECK_EQUAL(0, hami_bucket_kept_ns(&word, NOW));
    CHECK_EQUAL(60 * MS, hami_bucket_kept_ns(&word, NOW + 60 * MS));
    CHECK_EQUAL(HAMI_BUCKET_KEPT_NS, hami_bucket_kept_ns(&word, NOW + SECOND));
    hami_bucket_debit(&word, NOW, MS, 50);
    CHECK_EQUAL(2 * MS, hami_bucket_wait_ns(&word, NOW));
    CHECK_EQUAL(0, hami_bucket_kept_ns(&word, NOW));
}

static void correction_undoes_an_estimate(void)
{
    _Atomic uint64_t word = NOW;

    for (unsigned percent = 1; percent < 100; percent++) {
        hami_bucket_debit(&word, NOW, 7 * MS, percent);
        hami_bucket_debit(&word, NOW, -7 * (int64_t)MS, percent);
        CHECK_EQUAL(NOW, word);
    }
}

static void wait_ends_after_a_minute(void)
{
    _Atomic uint64_t word = NOW;

    hami_bucket_debit(&word, NOW, INT64_MAX, 1);
    CHECK_EQUAL(HAMI_BUCKET_OWED_NS, hami_bucket_wait_ns(&word, NOW));
    hami_bucket_debit(&word, NOW, INT64_MAX, 1);
    CHECK_EQUAL(HAMI_BUCKET_OWED_NS, hami_bucket_wait_ns(&word, NOW));
    hami_bucket_debit(&word, NOW, INT64_MIN, 1);
    CHECK_EQUAL(0, hami_bucket_wait_ns(&word, NOW));
}

static void any_word_is_a_bucket(void)
{
    static const uint64_t words[] = {1, NOW - SECOND, NOW + 3600ull * SECOND, INT64_MAX, UINT64_MAX, UINT64_MAX - SECOND};

    for (size_t index = 0; index < sizeof(words) / sizeof(words[0]); index++) {
        _Atomic uint64_t word = words[index];

        CHECK_EQUAL(0, hami_bucket_wait_ns(&word, NOW));
        hami_bucket_debit(&word, NOW, 100 * MS, 50);
        CHECK_EQUAL(100 * MS, hami_bucket_wait_ns(&word, NOW));
    }
}

static void debt_a_second_younger_than_the_clock_is_believed(void)
{
    _Atomic uint64_t word = 0;

    hami_bucket_debit(&word, NOW, INT64_MAX, 1);
    CHECK_EQUAL(HAMI_BUCKET_OWED_NS + MS, hami_bucket_wait_ns(&word, NOW - MS));
}

int main(void)
{
    share_is_exact_over_a_minute();
    unused_time_is_kept_for_one_burst();
    correction_undoes_an_estimate();
    wait_ends_after_a_minute();
    any_word_is_a_bucket();
    debt_a_second_younger_than_the_clock_is_believed();
    return check_failures();
}
