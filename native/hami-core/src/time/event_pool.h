/*
 * When the device reached a point of a stream, on the host's clock: timing events of one context, and the moment that anchors them.
 *
 * Owns a pool of events for each context and one stream of its own in it, on which an anchor is recorded every other second; the time of
 * every event is the anchor's plus what the driver says lies between. Nothing is recorded on a stream that is being captured. Events are
 * counted: what begins where something else ended shares its event.
 * Locks: none; the caller holds the meter's. Threads: pool and anchor are made with the context current; recording and asking need none.
 * Fork: events are the parent's; hami_event_pools_forget() in the child.
 */
#ifndef HAMI_EVENT_POOL_H
#define HAMI_EVENT_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

struct hami_event;
struct hami_event_pool;

/* The pool of a context, made if need be; NULL when there are too many contexts or the driver lacks events. */
struct hami_event_pool *hami_event_pool_of(CUcontext context);

/* The context of a pool; NULL once it is closed. */
CUcontext hami_event_pool_context(const struct hami_event_pool *pool);

/* Record a point on a stream, 0x1 and 0x2 for the default ones. NULL when it cannot be. Pair with hami_event_drop(). */
struct hami_event *hami_event_record(struct hami_event_pool *pool, CUstream stream, uint64_t now_ns);
struct hami_event *hami_event_hold(struct hami_event *event);
void hami_event_drop(struct hami_event *event);

enum hami_event_state { HAMI_EVENT_AHEAD, HAMI_EVENT_REACHED, HAMI_EVENT_LOST };

/* Whether the device has reached the point, and if so when. Lost: the driver does not say. */
enum hami_event_state hami_event_ask(struct hami_event *event, uint64_t *at_ns);

/* Destroy the events of a context that is about to end. Points still held are lost. */
void hami_event_pool_close(struct hami_event_pool *pool);

void hami_event_pools_forget(void);

#endif
