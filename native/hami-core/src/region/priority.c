#include "priority.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "clock.h"
#include "log.h"
#include "waits.h"

/* How long a blocked launch sleeps before it looks again: the longest time that it waits after the block has ended. */
#define BLOCKED_SLEEP_NS 20000000u

static bool is_asking(const _Atomic uint64_t *asked_at_ns, uint64_t now_ns)
{
    uint64_t asked_at = atomic_load(asked_at_ns);

    return asked_at && now_ns - asked_at < HAMI_BLOCK_ANSWER_NS;
}

_Bool hami_priority_must_wait(struct hami_block *block, _Atomic int32_t *recent_kernel, _Atomic uint64_t *asked_at_ns,
                              uint64_t now_ns)
{
    int32_t recent = atomic_load(recent_kernel);

    if (recent == HAMI_RECENT_ASKING)
        return is_asking(asked_at_ns, now_ns);
    if (recent >= 0)
        return false;
    if (!block->since_ns || is_asking(asked_at_ns, now_ns))
        block->since_ns = now_ns;
    atomic_store(asked_at_ns, 0);
    if (now_ns - block->since_ns < HAMI_BLOCK_LEASE_NS)
        return true;
    atomic_store(asked_at_ns, now_ns);
    if (!atomic_compare_exchange_strong(recent_kernel, &recent, HAMI_RECENT_ASKING))
        atomic_store(asked_at_ns, 0);
    block->since_ns = 0;
    return true;
}

void hami_priority_pass(struct hami_region *region, _Atomic uint64_t *asked_at_ns)
{
    struct hami_block block = {0};
    struct hami_wait wait = {.slept_ns = {0}};
    int32_t recent = atomic_load(&region->recent_kernel);

    while (asked_at_ns && hami_priority_must_wait(&block, &region->recent_kernel, asked_at_ns, hami_now_ns())) {
        uint64_t began_ns = hami_now_ns();

        hami_sleep_ns(BLOCKED_SLEEP_NS);
        hami_wait_add(&wait, HAMI_WAIT_PRIORITY, -1, hami_now_ns() - began_ns);
    }
    if (block.since_ns)
        hami_log(HAMI_LOG_DECISION, "launches continue after %llu ms",
                 (unsigned long long)(hami_now_ns() - block.since_ns) / 1000000u);
    /* Must not overwrite a block that the monitor sets at this moment. */
    recent = atomic_load(&region->recent_kernel);
    while (recent >= 0 && recent != HAMI_RECENT_ACTIVE &&
           !atomic_compare_exchange_weak(&region->recent_kernel, &recent, HAMI_RECENT_ACTIVE))
        continue;
}

void hami_priority_note_time(struct hami_region *region, uint64_t now_seconds)
{
    uint64_t stored = atomic_load(&region->last_kernel_time);

    while (stored < now_seconds && !atomic_compare_exchange_weak(&region->last_kernel_time, &stored, now_seconds))
        continue;
}
