/*
 * NVML's account decides what a busy nanosecond costs, slowly and within bounds.
 */
#include "scale.h"

#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define MS 1000000u

/* The scale after windows of `window_ms` in which the container used `used` percent and was charged for `busy`. */
static uint64_t after(unsigned windows, unsigned window_ms, unsigned used, unsigned busy)
{
    struct hami_scale scale = {0};
    uint64_t value = HAMI_ONE;

    while (windows--)
        value = hami_scale_add(&scale, (uint64_t)used * window_ms * MS / 100, (uint64_t)busy * window_ms * MS / 100);
    return value;
}

static void equal_accounts_leave_the_price(void)
{
    CHECK_EQUAL(HAMI_ONE, after(100, 200, 30, 30));
}

static void stretched_spans_are_paid_at_what_they_used(void)
{
    uint64_t half = after(60, 166, 30, 60);

    CHECK(half > HAMI_ONE * 48 / 100 && half < HAMI_ONE * 52 / 100);
    half = after(60, 1000, 5, 10);
    CHECK(half > HAMI_ONE * 48 / 100 && half < HAMI_ONE * 52 / 100);
}

static void whole_percents_even_out(void)
{
    struct hami_scale scale = {0};
    uint64_t value = HAMI_ONE;

    for (int window = 0; window < 1000; window++) {
        unsigned tenths = 30 + (unsigned)rand() % 40;

        value = hami_scale_add(&scale, (uint64_t)((tenths + 5) / 10) * 166 * MS / 100, (uint64_t)tenths * 166 * MS / 1000);
    }
    CHECK(value > HAMI_ONE * 95 / 100 && value < HAMI_ONE * 105 / 100);
}

static void one_odd_window_hardly_counts(void)
{
    struct hami_scale scale = {0};

    for (int window = 0; window < 50; window++)
        hami_scale_add(&scale, 100 * MS, 100 * MS);
    CHECK(hami_scale_add(&scale, 2 * MS, 100 * MS) > HAMI_ONE * 65 / 100);
}

static void price_stays_within_bounds(void)
{
    CHECK_EQUAL(HAMI_ONE / 16, after(1000, 1000, 0, 100));
    CHECK_EQUAL(HAMI_ONE * 5 / 4, after(1000, 1000, 100, 0));
}

int main(void)
{
    srand(1);
    equal_accounts_leave_the_price();
    stretched_spans_are_paid_at_what_they_used();
    whole_percents_even_out();
    one_odd_window_hardly_counts();
    price_stays_within_bounds();
    return check_failures();
}
