/*
 * When the device reached a point of a stream, on the host's clock: timing events of one context.
 *
 * Owns a pool of events for each context, and a stream in it on which an anchor is recorded every two seconds. The time of an event
 * is the anchor's time plus what the driver says lies between them. Nothing is recorded on a stream that is being captured. Events
 * are counted: an interval that begins where another ends shares its event.
 * Locks: none; the caller holds that of the context's device (meter.h). Threads: a pool and an anchor are made with the context
 * current; recording and asking need no current context.
 * Fork: events are the parent's; call hami_event_pools_forget() in the child.
 */
#ifndef HAMI_EVENT_POOL_H
#define HAMI_EVENT_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

struct hami_event;
struct hami_event_pool;

/* Return the pool of a context, made if necessary. NULL if there are too many contexts or the driver lacks events. */
struct hami_event_pool *hami_event_pool_of(CUcontext context, int device);

/* Return the device of a context that has a pool; -1 if it has none. Needs no lock. */
int hami_event_pool_device(CUcontext context);

/* Return the context of a pool; NULL once the pool is closed. */
CUcontext hami_event_pool_context(const struct hami_event_pool *pool);

/* A call of the driver that takes longer than this counts as slow: what the device did meanwhile is unknown. */
#define HAMI_SLOW_CALL_NS 10000000u

/*
 * Record an event on a stream; 0x1 and 0x2 are the default streams. NULL if that fails or has not ended long after `now_ns`. Pair
 * with hami_event_drop().
 */
struct hami_event *hami_event_record(struct hami_event_pool *pool, CUstream stream, uint64_t now_ns);
struct hami_event *hami_event_retain(struct hami_event *event);
void hami_event_drop(struct hami_event *event);

enum hami_event_state { HAMI_EVENT_AHEAD, HAMI_EVENT_REACHED, HAMI_EVENT_LOST };

/* Drop an event without the lock. */
void hami_event_return(struct hami_event *event);

/* Whether the device has reached an event, and when. LOST: the driver does not say. */
enum hami_event_state hami_event_ask(struct hami_event *event, uint64_t *at_ns);

/* Destroy the events of a context that is about to end. Events still held become LOST. */
void hami_event_pool_close(struct hami_event_pool *pool);

/* The context ends, and the lock could not be taken: its events are not used any more. The driver destroys them. Needs no lock. */
void hami_event_pool_lose(CUcontext context);

/* Whether that happened. When no stream of the device has such a pool any more, close them. */
bool hami_event_pool_is_lost(const struct hami_event_pool *pool);
void hami_event_pools_close_lost(int device);

void hami_event_pools_forget(void);

#endif
