/*
 * What launches tell the node's monitor, and how they obey it.
 *
 * Owns the region's `recent_kernel` and `last_kernel_time`. A launch stores 2 in the first. The monitor counts it down every 5 s to
 * see which containers are active. It stores -1 to block a container for one of higher priority, and 0 to release it. A monitor
 * that died cannot release a container, and the region does not say whether it runs. So a container that was blocked for half a
 * minute asks: it stores 1, as a launch's 2 after one round. A running monitor counts that down and stores -1 again within a round.
 * If it has not done so for two rounds, it is gone, and launches continue.
 * Source: HAMi, cmd/vGPUmonitor/feedback.go.
 */
#ifndef HAMI_PRIORITY_H
#define HAMI_PRIORITY_H

#include <stdint.h>

#include "hami/region.h"

/*
 * How long a block is obeyed before the container asks, and how long the monitor has to answer: a little more than two of its
 * rounds.
 */
#define HAMI_BLOCK_LEASE_NS 30000000000u
#define HAMI_BLOCK_ANSWER_NS 12000000000u

enum hami_recent_kernel { HAMI_RECENT_BLOCKED = -1, HAMI_RECENT_RELEASED = 0, HAMI_RECENT_ASKING = 1, HAMI_RECENT_ACTIVE = 2 };

/* What a waiting thread knows of the block. */
struct hami_block {
    uint64_t since_ns; /* 0: not blocked yet */
};

/*
 * Whether a launch must wait, for a region whose `recent_kernel` is not HAMI_RECENT_ACTIVE. Asks the monitor when it is time.
 * `asked_at_ns` is when this container asked. Pure except for these two words.
 */
_Bool hami_priority_must_wait(struct hami_block *block, _Atomic int32_t *recent_kernel, _Atomic uint64_t *asked_at_ns,
                              uint64_t now_ns);

/*
 * Note that this container launches. Waits while the monitor blocks it, unless `asked_at_ns` is NULL. Only needed while
 * `recent_kernel` is not HAMI_RECENT_ACTIVE.
 */
void hami_priority_pass(struct hami_region *region, _Atomic uint64_t *asked_at_ns);

/* Store the time of a launch, in seconds since 1970, unless a later one is stored. */
void hami_priority_note_time(struct hami_region *region, uint64_t now_seconds);

#endif
