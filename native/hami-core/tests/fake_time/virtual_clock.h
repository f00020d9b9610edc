/*
 * A clock that all processes of a node share and that moves only when every thread that takes part sleeps.
 *
 * Owns the file `clock` in FAKE_DRIVER_DIR (without the folder the clock is the process's own). Knows nothing of libc's calls.
 * Among the threads that take part one runs at a time, as coroutines do, so that a run is the same every time: the next is the one with
 * the earliest wake time, and of those the one that has waited longest. The clock then jumps to that time.
 *
 * A process that dies stops no time: sleepers look every 10 ms of real time whether the runner's process still lives. Nor does a thread
 * that waits for another one of its process, which is due, to do something: after the same time that one may run too.
 * Signals do not interrupt a virtual sleep. Fork: a child does not take part until it sleeps or enters.
 * All times are nanoseconds since the clock's zero. Threads are known by a number, never below 0.
 */
#ifndef FAKE_VIRTUAL_CLOCK_H
#define FAKE_VIRTUAL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Open the node's clock. Time first moves when `processes` of them have entered; at the start those of a smaller rank go first, and
 * without one (-1) in order of arrival. Returns false with errno set.
 */
bool virtual_clock_open(const char *folder, int processes, int rank);

uint64_t virtual_clock_now(void);

/* Let the calling thread take part; returns when it is its turn. */
void virtual_clock_enter(void);

/* End the calling thread's part. */
void virtual_clock_leave(void);

bool virtual_clock_is_inside(void);

/* Sleep; the thread enters first if need be. A time that has passed gives way to those that are due before it. */
void virtual_clock_sleep_until(uint64_t at_ns);

/*
 * A thread that is being created: reserved by its creator (-1 when there is no room), adopted by itself; or dropped when it could not be
 * created.
 */
int virtual_clock_reserve(void);
void virtual_clock_adopt(int thread);
void virtual_clock_drop(int thread);

/* Wait until a thread of this process has left for good. */
void virtual_clock_await(int thread);

/* End the part of all threads of this process. */
void virtual_clock_close(void);

#endif
