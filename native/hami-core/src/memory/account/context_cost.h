/*
 * What a context costs: how many this process has on a device, and what one takes.
 *
 * What one takes is learned when the first one is made, and raised by others that are measured to take more. Until one is measured, it
 * is what the device's use rose by when it was made, at most what other contexts of the container cost.
 * Locks: that of overhead.h, unless a function says otherwise. Fork: call hami_context_costs_forget() in the child.
 */
#ifndef HAMI_CONTEXT_COST_H
#define HAMI_CONTEXT_COST_H

#include <stdbool.h>
#include <stdint.h>

/* What a context can cost at most: more is another program's allocation. NVIDIA's contexts take 100 to 600 MiB. */
#define HAMI_CONTEXT_MOST ((uint64_t)1 << 30)

/* How many contexts are counted. Safe without the lock, as the next two are. */
int hami_context_count(int device);
void hami_context_count_change(int device, int change);

/* How many contexts the driver may have made already that are not counted yet: while one is being made. Without the lock. */
bool hami_context_is_being_made(int device);
void hami_context_begin_making(int device);
void hami_context_end_making(int device);

/* What one context takes; 0 for unknown. */
uint64_t hami_context_cost(int device);

/* What of `bytes` is contexts': all that they are known to take, if there is so much. */
uint64_t hami_context_part(int device, uint64_t bytes);

/*
 * Find what a new context is expected to take: the most that one in the container takes, or one of this process took. False if that
 * is unknown. Without the lock.
 */
bool hami_context_cost_expected(int device, uint64_t *bytes);

/*
 * Learn from a new context: what it was measured to take, 0 for not measured, and what all processes together used of the device
 * before it was made.
 */
void hami_context_cost_learn(int device, uint64_t measured, uint64_t device_before);

/* Learn that the contexts and modules of this process are measured to take so much together. */
void hami_context_cost_bound(int device, uint64_t together);

/* Tell the container's other processes what a context takes, as long as this one has one. */
void hami_context_cost_tell(int device);

void hami_context_costs_forget(void);

#endif
