/*
 * A block holds while a monitor keeps it, and no longer.
 */
#include "priority.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "check.h"

#define SECOND 1000000000ull
#define BEGIN (100 * SECOND)

enum { WAITERS = 3, LOOKS_A_SECOND = 50 };

static _Atomic int32_t recent;
static _Atomic uint64_t asked_at;

/* Play one round of a monitor that keeps the block. Source: HAMi, cmd/vGPUmonitor/feedback.go. */
static void monitor_round(void)
{
    if (recent > 0)
        recent = recent - 1;
    if (recent >= 0)
        recent = -1;
}

/* Wait with some threads until one may launch. The monitor lives until `dies_at` seconds. Returns the second of the launch. */
static uint64_t passes_at(uint64_t dies_at, uint64_t at_most)
{
    struct hami_block blocks[WAITERS] = {{0}};

    recent = HAMI_RECENT_BLOCKED;
    asked_at = 0;
    for (uint64_t look = 0; look < at_most * LOOKS_A_SECOND; look++) {
        uint64_t second = look / LOOKS_A_SECOND;

        if (look % (5 * LOOKS_A_SECOND) == 0 && second < dies_at)
            monitor_round();
        if (!hami_priority_must_wait(&blocks[look % WAITERS], &recent, &asked_at, BEGIN + look * SECOND / LOOKS_A_SECOND))
            return second;
    }
    return at_most;
}

static void block_of_a_living_monitor_holds_for_hours(void)
{
    CHECK_EQUAL(4 * 3600, passes_at(UINT64_MAX, 4 * 3600));
}

static void block_of_a_dead_monitor_ends(void)
{
    uint64_t longest = (HAMI_BLOCK_LEASE_NS + HAMI_BLOCK_ANSWER_NS) / SECOND + 1;

    CHECK(passes_at(0, 600) <= longest);
    CHECK(passes_at(100, 600) <= 100 + longest);
    CHECK(passes_at(100, 600) > 100);
}

static void released_container_goes_on(void)
{
    struct hami_block block = {0};

    recent = HAMI_RECENT_BLOCKED;
    asked_at = 0;
    CHECK(hami_priority_must_wait(&block, &recent, &asked_at, BEGIN));
    recent = HAMI_RECENT_RELEASED;
    CHECK(!hami_priority_must_wait(&block, &recent, &asked_at, BEGIN));
}

static void one_round_after_a_launch_is_no_block(void)
{
    struct hami_block block = {0};

    recent = 1;
    asked_at = 0;
    CHECK(!hami_priority_must_wait(&block, &recent, &asked_at, BEGIN));
}

int main(void)
{
    block_of_a_living_monitor_holds_for_hours();
    block_of_a_dead_monitor_ends();
    released_container_goes_on();
    one_round_after_a_launch_is_no_block();
    return check_failures();
}
