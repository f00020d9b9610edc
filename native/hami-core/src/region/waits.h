/*
 * How often and how long this library waits itself, by reason.
 *
 * Owns the words of the region that count waits, which the monitor exports. Says at log level 2 that a wait took 100 ms, and then
 * each time that one took twice as long as the longest of the same reason that was said. Safe in any thread; takes no lock. Waits
 * from before the region is mapped are added when it is.
 */
#ifndef HAMI_WAITS_H
#define HAMI_WAITS_H

#include <stdint.h>

#include "hami/region.h"

/* What one call has waited so far, by reason. Begin with zeros. */
struct hami_wait {
    uint64_t slept_ns[HAMI_WAIT_REASONS];
};

/* Count a sleep of a call. All its sleeps for a reason are one wait. `device` is -1 if the wait is not for a device. */
void hami_wait_add(struct hami_wait *wait, enum hami_wait_reason reason, int device, uint64_t slept_ns);

/* Count a wait of one sleep; 0 counts nothing. */
void hami_wait_once(enum hami_wait_reason reason, int device, uint64_t slept_ns);

/* Add to a region that is about to be used what was counted before there was one. */
void hami_waits_publish(struct hami_region *region);

#endif
