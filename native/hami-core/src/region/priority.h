/*
 * What launches tell the node's monitor, and how they obey it.
 *
 * Owns the region's `recent_kernel` and `last_kernel_time`. A launch stores 2 in the first, which the monitor counts down every 5 s to
 * see which containers are active; the monitor stores -1 to hold a container back for one of higher priority, and 0 to let it go. A
 * monitor that died cannot let go, and nothing in the region says whether it lives. So a container that was held back for half a minute
 * asks: it stores 1, as a launch's 2 after one round. A monitor that lives counts that down and stores -1 again within a round; one that
 * has not for two rounds is gone, and launches go on.
 * Source: HAMi, cmd/vGPUmonitor/feedback.go.
 */
#ifndef HAMI_PRIORITY_H
#define HAMI_PRIORITY_H

#include <stdint.h>

#include "hami/region.h"

/* How long a block is believed, and how long the monitor has to say that it stands: two of its rounds and some. */
#define HAMI_BLOCK_LEASE_NS 30000000000u
#define HAMI_BLOCK_ANSWER_NS 12000000000u

enum hami_recent_kernel { HAMI_RECENT_BLOCKED = -1, HAMI_RECENT_RELEASED = 0, HAMI_RECENT_ASKING = 1, HAMI_RECENT_ACTIVE = 2 };

/* What one thread knows of a block that it waits behind. */
struct hami_block {
    uint64_t since_ns; /* 0: not blocked yet */
};

/*
 * Look at a region that does not say HAMI_RECENT_ACTIVE, asking if it is time, and say whether a launch must wait. `asked_at_ns` is
 * the container's: when it asked. Pure but for the two words.
 */
_Bool hami_priority_must_wait(struct hami_block *block, _Atomic int32_t *recent_kernel, _Atomic uint64_t *asked_at_ns,
                              uint64_t now_ns);

/*
 * Say that this container launches. Waits while the monitor holds it back, unless `asked_at_ns` is NULL. Only needed while the region
 * does not say so already.
 */
void hami_priority_pass(struct hami_region *region, _Atomic uint64_t *asked_at_ns);

/* Store the time of a launch, in seconds since 1970; never an earlier one. */
void hami_priority_note_time(struct hami_region *region, uint64_t now_seconds);

#endif
