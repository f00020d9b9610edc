/*
 * Which process of a container launches next while all wait for their share of a device.
 *
 * Each process has an entry with the GPU time it used, and with the time by which it looks or launches again. One process at a time
 * has the turn. It keeps it until it has used HAMI_LEAD_NS more than one that waits. Then the process that used least gets it. So
 * processes that always want the device progress evenly, however long their kernels are, and none starves. They hardly run at once,
 * so none counts the others' work as its own when it measures. A process that did not want the device for a while gets no
 * compensation beyond the lead (start-time fair queueing). A process that dies or stops is waited for until the time it announced.
 * Any content is valid. Pure: no clock, no lock, no device.
 * Source of the algorithm: Goyal, Vin, Cheng, Start-time Fair Queueing, SIGCOMM 1996.
 */
#ifndef HAMI_PROCESS_TURNS_H
#define HAMI_PROCESS_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/*
 * How far a process may get ahead of one that waits, not counting one launch: several time slices, so that it does not cut slices
 * short.
 */
#define HAMI_LEAD_NS 10000000u

struct hami_process_turn {
    _Atomic uint64_t used_ns; /* only differences have a meaning */
    _Atomic uint64_t back_ns; /* by when it looks or launches again */
    _Atomic uint64_t is_waiting; /* 0: its last launch started */
};

/* A container's processes on one device, by their slots in the region. */
struct hami_process_turns {
    _Atomic uint64_t reached_ns; /* the most that a process had used when it launched */
    _Atomic uint64_t holder_index; /* the process that has the turn */
    struct hami_process_turn processes[HAMI_SLOTS_MAX];
};

/* Add the estimated cost of a launch; later the difference to the real cost, which may be negative. */
void hami_process_turns_use(struct hami_process_turns *turns, int index, int64_t ns);

/*
 * Whether one of `count` processes must launch before this one. If strict: unless this one has the turn, or can take it. Otherwise:
 * only if this one is ahead.
 */
bool hami_process_turns_must_yield(struct hami_process_turns *turns, int index, int count, bool is_strict, uint64_t now_ns);

/* Note that a process waits, and by when it looks again. */
void hami_process_turns_wait(struct hami_process_turns *turns, int index, uint64_t back_ns);

/* Note that a process launched, and by when it launches again if it goes on. */
void hami_process_turns_pass(struct hami_process_turns *turns, int index, uint64_t back_ns);

#endif
