/*
 * The word that says since when a launch runs: the oldest one counts, and none outlives its process for long.
 */
#include "long_run.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

#define MS 1000000u
#define START ((uint64_t)5000000 * MS)
#define ERROR_NS (2u * MS)

static _Atomic uint64_t word;

static void check_since(uint64_t expected_ns, uint64_t now_ns)
{
    uint64_t since = hami_long_run_since(&word, now_ns);

    CHECK(since <= expected_ns && since + ERROR_NS >= expected_ns);
}

static void fresh_word_is_none(void)
{
    CHECK_EQUAL(0, hami_long_run_since(&word, START));
}

static void oldest_launch_counts_while_it_is_noted(void)
{
    hami_long_run_note(&word, START, START + 1000 * MS);
    hami_long_run_note(&word, START + 500 * MS, START + 1300 * MS);
    check_since(START, START + 1400 * MS);
    hami_long_run_note(&word, START - 500 * MS, START + 1400 * MS);
    check_since(START - 500 * MS, START + 1600 * MS);
}

static void launch_is_forgotten_if_it_is_not_noted_again(void)
{
    CHECK_EQUAL(0, hami_long_run_since(&word, START + 2500 * MS));
    hami_long_run_note(&word, START + 500 * MS, START + 2500 * MS);
    check_since(START + 500 * MS, START + 2501 * MS);
}

static void answer_stays_the_same(void)
{
    uint64_t since = hami_long_run_since(&word, START + 2501 * MS);

    for (uint64_t now = START + 2501 * MS; now < START + 40000 * (uint64_t)MS; now += 97 * MS) {
        hami_long_run_note(&word, START + 500 * MS, now);
        CHECK_EQUAL(since, hami_long_run_since(&word, now));
    }
}

/* What a broken word claims is in the past, and over soon. */
static void any_content_is_valid(void)
{
    srand(1);
    for (int round = 0; round < 100000; round++) {
        uint64_t content = (uint64_t)(unsigned)rand() << 40 ^ (uint64_t)(unsigned)rand() << 20 ^ (uint64_t)(unsigned)rand();

        atomic_store(&word, content);
        CHECK(hami_long_run_since(&word, START) <= START);
        CHECK(hami_long_run_since(&word, START) == 0 || hami_long_run_since(&word, START + HAMI_LONG_RUN_KNOWN_NS + ERROR_NS) == 0);
    }
}

int main(void)
{
    fresh_word_is_none();
    oldest_launch_counts_while_it_is_noted();
    launch_is_forgotten_if_it_is_not_noted_again();
    answer_stays_the_same();
    any_content_is_valid();
    return check_failures();
}
