/*
 * Whose launch is next while the processes of a container wait for their share of one device: one at a time has the floor.
 *
 * Each process has a place with the GPU time it used, and says there by when it is back. The one that has the floor launches until it is
 * HAMI_LEAD_NS ahead of one that waits; then that one has it that used least. So processes that always want the device come along evenly,
 * whatever their kernels last, and none starves; and they hardly run at once, so that none takes the others' work for its own when it
 * measures. Who did not want the device for a while has no claim to what it missed beyond the lead (start-time fair queueing). One that
 * dies or stops is waited for no longer than it said. Pure: no clock, no lock, no device; any content is valid.
 * Source of the algorithm: Goyal, Vin, Cheng, Start-time Fair Queueing, SIGCOMM 1996.
 */
#ifndef HAMI_PROCESS_TURNS_H
#define HAMI_PROCESS_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/* How far one process may get ahead of another that waits, beside one launch: some turns, so that turns are not cut short for it. */
#define HAMI_LEAD_NS 10000000u

struct hami_place {
    _Atomic uint64_t used_ns; /* only differences count */
    _Atomic uint64_t back_ns; /* by when it looks or launches again if it goes on */
    _Atomic uint64_t is_waiting; /* 0: its last launch passed */
};

/* A container's processes on one device, by their slots in the region. */
struct hami_process_turns {
    _Atomic uint64_t reached_ns; /* what those that passed last had used */
    _Atomic uint64_t floor; /* whose turn it is */
    struct hami_place places[HAMI_SLOTS_MAX];
};

/* Add what a launch is estimated to cost, and then by how much more, or less when negative, it did. */
void hami_process_turns_use(struct hami_process_turns *turns, int place, int64_t ns);

/*
 * Whether one of `count` places must go before this one: strictly, unless this one has the floor, which it takes if it can; else only when
 * this one is ahead.
 */
bool hami_process_turns_must_yield(struct hami_process_turns *turns, int place, int count, bool is_strict, uint64_t now_ns);

/* Say that a process waits, and by when it looks again. */
void hami_process_turns_wait(struct hami_process_turns *turns, int place, uint64_t back_ns);

/* Say that a process's launch passed, and by when there is another one if it goes on. */
void hami_process_turns_pass(struct hami_process_turns *turns, int place, uint64_t back_ns);

#endif
