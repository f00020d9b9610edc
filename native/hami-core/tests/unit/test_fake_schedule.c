/*
 * The fake device's arithmetic, compared with slow and plain versions: round robin, places for work, and histories.
 */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "time/history.h"
#include "time/profile.h"
#include "time/round_robin.h"

#define MS 1000000u
#define SECOND 1000000000ull

/* Round robin */

static const struct round_robin_rule rule = {2 * MS, MS / 10, 100};

/* Run contexts until `limit_ns`, and add up what each of them gets. */
static void run_all(struct round_robin *order, struct round_robin_work *work, int count, uint64_t limit_ns, uint64_t *got_ns)
{
    struct stretch stretch;

    while (round_robin_next(order, &rule, work, count, limit_ns, &stretch)) {
        uint64_t length = stretch.to_ns - stretch.from_ns;
        unsigned int taken = 0;

        for (int index = 0; index < stretch.count; index++) {
            struct round_robin_work *one = &work[stretch.contexts[index]];

            CHECK(length > 0 && length <= one->left_ns);
            one->left_ns -= length;
            taken += one->multiprocessors;
            got_ns[stretch.contexts[index]] += length;
        }
        CHECK(taken ? taken <= rule.multiprocessors : stretch.count == 1);
    }
    CHECK(order->at_ns >= limit_ns);
}

/* The same for three ordinary contexts. */
static void run_slices(struct round_robin *order, uint64_t *left_ns, uint64_t limit_ns, uint64_t *got_ns)
{
    struct round_robin_work work[] = {{left_ns[0], 0}, {left_ns[1], 0}, {left_ns[2], 0}};

    run_all(order, work, 3, limit_ns, got_ns);
    for (int context = 0; context < 3; context++)
        left_ns[context] = work[context].left_ns;
}

static void test_slices_share_equally_at_the_price_of_interruptions(void)
{
    uint64_t left[] = {SECOND, SECOND, SECOND}, got[3] = {0};
    struct round_robin order = {0};

    run_slices(&order, left, 63 * MS, got);
    for (int context = 0; context < 3; context++)
        CHECK_EQUAL(20 * MS, got[context]);
}

static void test_one_that_is_alone_is_never_interrupted(void)
{
    uint64_t left[] = {0, SECOND, 0}, got[3] = {0};
    struct round_robin order = {0};

    run_slices(&order, left, 500 * MS, got);
    CHECK_EQUAL(500 * MS, got[1]);
}

static void test_one_that_is_done_makes_room_at_once(void)
{
    uint64_t left[] = {MS / 2, MS / 2, MS / 2}, got[3] = {0};
    struct round_robin order = {0};

    run_slices(&order, left, 3 * MS / 2, got);
    CHECK_EQUAL(MS / 2, got[2]);
}

static void test_newcomer_waits_for_the_end_of_a_slice(void)
{
    uint64_t left[] = {SECOND, 0, 0}, got[3] = {0};
    struct round_robin order = {0};

    run_slices(&order, left, 101 * MS, got);
    left[1] = SECOND;
    run_slices(&order, left, 102 * MS, got);
    CHECK_EQUAL(0, got[1]);
    run_slices(&order, left, 102 * MS + MS / 10 + 5, got);
    CHECK_EQUAL(5, got[1]);
}

static void test_asking_often_changes_nothing(void)
{
    uint64_t seldom[] = {40 * MS, 3 * MS, 25 * MS}, often[] = {40 * MS, 3 * MS, 25 * MS}, got[3] = {0}, other[3] = {0};
    struct round_robin one = {0}, two = {0};

    run_slices(&one, seldom, 50 * MS, got);
    for (uint64_t now = 0; now <= 50 * MS; now += 12345)
        run_slices(&two, often, now, other);
    run_slices(&two, often, 50 * MS, other);
    CHECK(memcmp(got, other, sizeof(got)) == 0);
}

static void test_clients_run_side_by_side_up_to_their_multiprocessors(void)
{
    struct round_robin_work fitting[] = {{SECOND, 50}, {SECOND, 30}, {SECOND, 20}};
    struct round_robin_work crowded[] = {{SECOND, 50}, {SECOND, 50}, {SECOND, 50}};
    uint64_t got[3] = {0}, other[3] = {0};
    struct round_robin one = {0}, two = {0};

    run_all(&one, fitting, 3, 60 * MS, got);
    run_all(&two, crowded, 3, 60 * MS, other);
    for (int context = 0; context < 3; context++) {
        CHECK_EQUAL(60 * MS, got[context]);
        CHECK_EQUAL(40 * MS, other[context]);
    }
}

static void test_clients_that_need_everything_take_turns_at_no_cost(void)
{
    struct round_robin_work work[] = {{SECOND, 100}, {SECOND, 100}, {SECOND, 100}};
    struct round_robin order = {0};
    uint64_t got[3] = {0};

    run_all(&order, work, 3, 60 * MS, got);
    for (int context = 0; context < 3; context++)
        CHECK_EQUAL(20 * MS, got[context]);
}

static void test_clients_together_have_the_slice_of_one_ordinary_context(void)
{
    struct round_robin_work work[] = {{SECOND, 0}, {SECOND, 100}, {SECOND, 100}, {SECOND, 0}};
    struct round_robin order = {0};
    uint64_t got[4] = {0};

    run_all(&order, work, 4, 126 * MS, got);
    CHECK_EQUAL(40 * MS, got[0]);
    CHECK_EQUAL(40 * MS, got[1] + got[2]);
    CHECK_EQUAL(20 * MS, got[1]);
    CHECK_EQUAL(40 * MS, got[3]);
}

static void test_client_that_is_done_leaves_the_rest_of_the_slice_to_the_others(void)
{
    struct round_robin_work work[] = {{MS / 2, 100}, {SECOND, 100}, {SECOND, 0}};
    struct round_robin order = {.slice_end_ns = 2 * MS};
    uint64_t got[3] = {0};

    run_all(&order, work, 3, 2 * MS + MS / 10 + 5, got);
    CHECK_EQUAL(MS / 2, got[0]);
    CHECK_EQUAL(3 * MS / 2, got[1]);
    CHECK_EQUAL(5, got[2]);
}

/* Profiles: the plain version counts the used part of every instant. */

enum { INSTANTS = 4000 };

static uint64_t place_plainly(unsigned int *used, uint64_t earliest, uint64_t duration, unsigned int part)
{
    uint64_t start = earliest;

    for (uint64_t at = start; at < start + duration; at++)
        if (used[at] + part > PROFILE_WHOLE)
            start = at + 1;
    for (uint64_t at = start; at < start + duration; at++)
        used[at] += part;
    return start + duration;
}

static void test_work_gets_the_first_place_it_fits_in(void)
{
    static unsigned int used[INSTANTS];
    struct profile profile = {0};
    uint64_t now = 0, end;

    srand(7);
    for (int piece = 0; piece < 150; piece++) {
        uint64_t earliest = now + (uint64_t)rand() % 30, duration = 1 + (uint64_t)rand() % 20;
        unsigned int part = 1 + (unsigned int)rand() % PROFILE_WHOLE;

        now += (uint64_t)rand() % 8;
        earliest = earliest > now ? earliest : now;
        CHECK(profile_place(&profile, now, earliest, duration, part, &end));
        CHECK_EQUAL(place_plainly(used, earliest, duration, part), end);
    }
    profile_clear(&profile);
}

static void test_work_in_a_row_takes_no_memory(void)
{
    struct profile profile = {0};
    uint64_t end = 0;

    for (int piece = 0; piece < 100000; piece++)
        profile_place(&profile, 0, end, 7, PROFILE_WHOLE, &end);
    CHECK_EQUAL(700000, end);
    CHECK_EQUAL(2, profile.count);
    profile_clear(&profile);
}

/* Histories: the plain version keeps every interval. */

enum { STRETCHES = 20000 };

static uint64_t starts[STRETCHES], ends[STRETCHES];

static uint64_t busy_plainly(int count, uint64_t until)
{
    uint64_t busy = 0;

    for (int index = 0; index < count && starts[index] < until; index++)
        busy += (ends[index] < until ? ends[index] : until) - starts[index];
    return busy;
}

static void test_history_is_exact_at_milliseconds(void)
{
    struct history *history = calloc(1, sizeof(*history));
    uint64_t at = 3 * SECOND;

    srand(11);
    for (int index = 0; index < STRETCHES; index++) {
        starts[index] = at + (uint64_t)rand() % (index % 50 ? 100000 : 5 * MS);
        ends[index] = at = starts[index] + 1 + (uint64_t)rand() % (index % 31 ? 60000 : 4 * MS);
        history_add(history, starts[index], ends[index]);
    }
    for (uint64_t when = 0; when < at + 2 * MS; when += 37 * MS)
        CHECK_EQUAL(busy_plainly(STRETCHES, when), history_busy_ns(history, when));
    CHECK(history->appended < 2 * (at - 3 * SECOND) / MS);
    free(history);
}

static void test_history_forgets_the_oldest(void)
{
    struct history *history = calloc(1, sizeof(*history));
    uint64_t stretches = HISTORY_POINTS, end = 2 * stretches * MS;

    for (uint64_t index = 0; index < stretches; index++)
        history_add(history, 2 * index * MS, (2 * index + 1) * MS);
    CHECK_EQUAL(stretches * MS, history_busy_ns(history, end));
    CHECK_EQUAL(1000 * MS, history_busy_ns(history, end) - history_busy_ns(history, end - 2000 * MS));
    CHECK_EQUAL(history_busy_ns(history, 1000 * MS), history_busy_ns(history, 0));
    history_clear(history);
    CHECK_EQUAL(0, history_busy_ns(history, end));
    free(history);
}

int main(void)
{
    test_slices_share_equally_at_the_price_of_interruptions();
    test_one_that_is_alone_is_never_interrupted();
    test_one_that_is_done_makes_room_at_once();
    test_newcomer_waits_for_the_end_of_a_slice();
    test_asking_often_changes_nothing();
    test_clients_run_side_by_side_up_to_their_multiprocessors();
    test_clients_that_need_everything_take_turns_at_no_cost();
    test_clients_together_have_the_slice_of_one_ordinary_context();
    test_client_that_is_done_leaves_the_rest_of_the_slice_to_the_others();
    test_work_gets_the_first_place_it_fits_in();
    test_work_in_a_row_takes_no_memory();
    test_history_is_exact_at_milliseconds();
    test_history_forgets_the_oldest();
    return check_failures();
}
