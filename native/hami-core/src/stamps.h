/*
 * When the device reached a point of a stream, on the host's clock: timing events of one context, and the moment that anchors them.
 *
 * Owns a pool of events for each context and one stream of its own in it, on which an anchor is recorded every other second; the time of
 * every event is the anchor's plus what the driver says lies between. Nothing is recorded on a stream that is being captured. Events are
 * counted: what begins where something else ended shares its event.
 * Locks: none; the caller holds the meter's. Threads: pool and anchor are made with the context current; recording and asking need none.
 * Fork: events are the parent's; hami_stamps_forget() in the child.
 */
#ifndef HAMI_STAMPS_H
#define HAMI_STAMPS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

struct hami_stamp;
struct hami_stamps;

/* The pool of a context, made if need be; NULL when there are too many contexts or the driver lacks events. */
struct hami_stamps *hami_stamps_of(CUcontext context);

/* The context of a pool; NULL once it is closed. */
CUcontext hami_stamps_context(const struct hami_stamps *stamps);

/* Record a point on a stream, 0x1 and 0x2 for the default ones. NULL when it cannot be. Pair with hami_stamp_drop(). */
struct hami_stamp *hami_stamp_record(struct hami_stamps *stamps, CUstream stream, uint64_t now_ns);
struct hami_stamp *hami_stamp_hold(struct hami_stamp *stamp);
void hami_stamp_drop(struct hami_stamp *stamp);

enum hami_stamp_state { HAMI_STAMP_AHEAD, HAMI_STAMP_REACHED, HAMI_STAMP_LOST };

/* Whether the device has reached the point, and if so when. Lost: the driver does not say. */
enum hami_stamp_state hami_stamp_ask(struct hami_stamp *stamp, uint64_t *at_ns);

/* Destroy the events of a context that is about to end. Points still held are lost. */
void hami_stamps_close(struct hami_stamps *stamps);

void hami_stamps_forget(void);

#endif
