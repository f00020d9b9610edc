#include "waits.h"

#include <stdatomic.h>

#include "log.h"
#include "options.h"
#include "region_map.h"

/* The shortest wait that is said. */
#define SAID_LEAST_MS 100u

#define COUNT_ONE ((uint64_t)1 << 32)

/* The two words of each reason, while there is no region. */
static _Atomic uint64_t early[2 * HAMI_WAIT_REASONS];

static _Atomic uint64_t said_ms[HAMI_WAIT_REASONS];

static _Atomic uint64_t *word_of(struct hami_region *region, int index)
{
    return region ? &region->procs[0].used[index].waits : &early[index];
}

static uint64_t longer(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

/* Add waits to a word of counts: `count` of them, the longest of `longest_us`. */
static void add(_Atomic uint64_t *word, uint64_t count, uint64_t longest_us)
{
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed), after;

    if (longest_us > UINT32_MAX)
        longest_us = UINT32_MAX;
    do
        after = (before & ~(uint64_t)UINT32_MAX) + count * COUNT_ONE + longer(before & UINT32_MAX, longest_us);
    while (!atomic_compare_exchange_weak(word, &before, after));
}

static void say(enum hami_wait_reason reason, int device, uint64_t slept_ns)
{
    static const char *const causes[HAMI_WAIT_REASONS] = {
        [HAMI_WAIT_SHARE] = "a launch, for the container's share of the device's time",
        [HAMI_WAIT_QUEUE] = "a launch, for what is queued on the device",
        [HAMI_WAIT_COST] = "a launch, for the first launch of its kind",
        [HAMI_WAIT_PRIORITY] = "a launch, for a container of higher priority",
        [HAMI_WAIT_REGION] = "another process that uses the region",
        [HAMI_WAIT_CONTEXT] = "another context that is being made",
        [HAMI_WAIT_POOL] = "other threads that use the same memory pool",
        [HAMI_WAIT_DRIVER] = "another thread's call of the driver",
    };
    uint64_t ms = slept_ns / 1000000u, before = atomic_load_explicit(&said_ms[reason], memory_order_relaxed);

    if (ms < SAID_LEAST_MS || ms < 2 * before || !atomic_compare_exchange_strong(&said_ms[reason], &before, ms))
        return;
    if (device >= 0)
        hami_log(HAMI_LOG_WARNING, "device %d: waited %llu ms: %s", device, (unsigned long long)ms, causes[reason]);
    else
        hami_log(HAMI_LOG_WARNING, "%s: waited %llu ms: %s", hami_options()->region_path, (unsigned long long)ms, causes[reason]);
}

void hami_wait_add(struct hami_wait *wait, enum hami_wait_reason reason, int device, uint64_t slept_ns)
{
    struct hami_region *region = hami_region();
    uint64_t before = wait->slept_ns[reason];

    if (!slept_ns)
        return;
    wait->slept_ns[reason] += slept_ns;
    atomic_fetch_add_explicit(word_of(region, 2 * reason), slept_ns, memory_order_relaxed);
    add(word_of(region, 2 * reason + 1), !before, wait->slept_ns[reason] / 1000u);
    say(reason, device, wait->slept_ns[reason]);
}

void hami_wait_once(enum hami_wait_reason reason, int device, uint64_t slept_ns)
{
    hami_wait_add(&(struct hami_wait){.slept_ns = {0}}, reason, device, slept_ns);
}

void hami_waits_publish(struct hami_region *region)
{
    for (int reason = 0; reason < HAMI_WAIT_REASONS; reason++) {
        uint64_t counts = atomic_exchange(&early[2 * reason + 1], 0);

        atomic_fetch_add(word_of(region, 2 * reason), atomic_exchange(&early[2 * reason], 0));
        add(word_of(region, 2 * reason + 1), counts / COUNT_ONE, counts & UINT32_MAX);
    }
}
