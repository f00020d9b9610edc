/*
 * Processes of a container that want a device progress evenly, for kernels of any length and any content of the words.
 */
#include "process_turns.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define MS 1000000u
#define NOW 1000000000000ull
#define SLEEP_NS (100 * MS)

enum { PROCESSES = 4 };

static struct hami_process_turns turns;
static uint64_t had[PROCESSES];

/* Let the processes whose bit is set in `wanting` launch in a random order until they have used enough. */
static void launch(unsigned wanting, const uint64_t *lengths, uint64_t total)
{
    uint64_t now = NOW, used = 0;

    while (used < total) {
        int one = rand() % PROCESSES;

        now += MS;
        if (!(wanting & 1u << one))
            continue;
        if (hami_process_turns_must_yield(&turns, one, PROCESSES, true, now)) {
            hami_process_turns_wait(&turns, one, now + SLEEP_NS);
            continue;
        }
        hami_process_turns_pass(&turns, one, now + SLEEP_NS);
        hami_process_turns_use(&turns, one, (int64_t)lengths[one]);
        had[one] += lengths[one];
        used += lengths[one];
        hami_process_turns_wait(&turns, one, now + SLEEP_NS);
    }
}

static void begin(int byte)
{
    memset(&turns, byte, sizeof(turns));
    memset(had, 0, sizeof(had));
}

static uint64_t apart(int one, int other)
{
    return had[one] > had[other] ? had[one] - had[other] : had[other] - had[one];
}

static void all_come_along_evenly(void)
{
    static const uint64_t lengths[PROCESSES] = {MS / 50, MS, 10 * MS, 100 * MS};
    static const int bytes[] = {0, 0xff, 0x55, 0x80};

    for (size_t row = 0; row < sizeof(bytes) / sizeof(bytes[0]); row++) {
        begin(bytes[row]);
        launch(0xf, lengths, 10000ull * MS);
        for (int one = 1; one < PROCESSES; one++)
            CHECK(apart(0, one) <= HAMI_LEAD_NS * 2 + lengths[one]);
    }
}

/* No other process launches until this one is ahead. */
static void one_at_a_time_launches(void)
{
    begin(0);
    hami_process_turns_wait(&turns, 1, NOW + SLEEP_NS);
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW));
    hami_process_turns_use(&turns, 0, (int64_t)HAMI_LEAD_NS);
    hami_process_turns_pass(&turns, 0, NOW + MS);
    CHECK(hami_process_turns_must_yield(&turns, 1, PROCESSES, true, NOW));
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW));
    hami_process_turns_use(&turns, 0, 1);
    CHECK(hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW));
    CHECK(!hami_process_turns_must_yield(&turns, 1, PROCESSES, true, NOW));
    hami_process_turns_pass(&turns, 1, NOW + MS);
    hami_process_turns_wait(&turns, 0, NOW + SLEEP_NS);
    CHECK(hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW));
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW + MS));
}

/* However much the others have used meanwhile. */
static void waiting_process_keeps_its_claim(void)
{
    begin(0);
    hami_process_turns_wait(&turns, 1, NOW + SLEEP_NS);
    hami_process_turns_use(&turns, 0, 100 * (int64_t)HAMI_LEAD_NS);
    hami_process_turns_pass(&turns, 0, NOW + MS);
    CHECK(!hami_process_turns_must_yield(&turns, 1, PROCESSES, true, NOW));
    hami_process_turns_use(&turns, 1, 50 * (int64_t)HAMI_LEAD_NS);
    hami_process_turns_pass(&turns, 1, NOW + MS);
    hami_process_turns_wait(&turns, 0, NOW + SLEEP_NS);
    CHECK(!hami_process_turns_must_yield(&turns, 1, PROCESSES, true, NOW));
}

static void process_ahead_of_others_yields(void)
{
    begin(0);
    hami_process_turns_wait(&turns, 1, NOW + SLEEP_NS);
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, false, NOW));
    hami_process_turns_use(&turns, 0, (int64_t)HAMI_LEAD_NS);
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, false, NOW));
    CHECK(!hami_process_turns_must_yield(&turns, 1, PROCESSES, false, NOW));
    hami_process_turns_use(&turns, 0, 1);
    CHECK(hami_process_turns_must_yield(&turns, 0, PROCESSES, false, NOW));
}

static void resting_process_loses_its_claim(void)
{
    static const uint64_t lengths[PROCESSES] = {MS, MS, MS, MS};

    begin(0);
    launch(0x7, lengths, 3000 * MS);
    launch(0xf, lengths, 400 * MS);
    CHECK(had[3] <= 100 * MS + 3 * HAMI_LEAD_NS);
    CHECK(had[3] >= 100 * MS - 3 * HAMI_LEAD_NS);
}

static void dead_are_not_waited_for(void)
{
    begin(0);
    hami_process_turns_wait(&turns, 1, NOW + SLEEP_NS);
    hami_process_turns_use(&turns, 0, 2 * (int64_t)HAMI_LEAD_NS);
    CHECK(hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW));
    CHECK(!hami_process_turns_must_yield(&turns, 0, PROCESSES, true, NOW + SLEEP_NS));
}

int main(void)
{
    srand(1);
    all_come_along_evenly();
    one_at_a_time_launches();
    waiting_process_keeps_its_claim();
    process_ahead_of_others_yields();
    resting_process_loses_its_claim();
    dead_are_not_waited_for();
    return check_failures();
}
