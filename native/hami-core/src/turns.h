/*
 * Whose launch is next while the processes of a container wait for their share of one device: those that had least go first.
 *
 * Each process has a place with the GPU time that its launches were estimated to cost, and says there until when it waits. Who is more
 * than HAMI_LEAD_NS ahead of one that waits lets that one go first, so processes that always want the device come along evenly, whatever
 * their kernels last, and none starves. Who did not want it for a while has no claim to what it missed beyond the lead (start-time fair
 * queueing). One that dies or stops is waited for no longer than it said. Pure: no clock, no lock, no device; any content is valid.
 * Source of the algorithm: Goyal, Vin, Cheng, Start-time Fair Queueing, SIGCOMM 1996.
 */
#ifndef HAMI_TURNS_H
#define HAMI_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/* How far one process may get ahead of another that waits, beside one launch: some turns, so that turns are not cut short for it. */
#define HAMI_LEAD_NS 10000000u

struct hami_place {
    _Atomic uint64_t used_ns; /* only differences count */
    _Atomic uint64_t waits_until_ns; /* 0: it does not wait */
};

/* A container's processes on one device, by their slots in the region. */
struct hami_turns {
    _Atomic uint64_t reached_ns; /* what those that passed last had used */
    struct hami_place places[HAMI_SLOTS_MAX];
};

/* Add what a launch is estimated to cost. */
void hami_turns_use(struct hami_turns *turns, int place, uint64_t ns);

/* Whether one of `count` places that waits must go before this one. */
bool hami_turns_must_yield(struct hami_turns *turns, int place, int count, uint64_t now_ns);

/* Say that a process waits and looks again by then; or with 0 that its launch passed. */
void hami_turns_wait(struct hami_turns *turns, int place, uint64_t until_ns);

#endif
