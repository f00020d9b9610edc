/*
 * A clock that all processes of a node share. It advances only when every thread that takes part sleeps.
 *
 * Owns the file `clock` in FAKE_DRIVER_DIR; without the folder each process has its own clock. Knows nothing of libc's calls. Of
 * the threads that take part one runs at a time, like coroutines, so that every run is the same. The next one is the thread with
 * the earliest wake time, and among those the one that has waited longest. The clock then jumps to that time.
 *
 * The death of a process does not stop time: sleepers check every 10 ms of real time whether the running process lives. If the
 * running thread waits for another one of its process, which is due, that one may run too after the same time. Signals do not
 * interrupt a virtual sleep. Fork: a child does not take part until it sleeps or enters. All times are nanoseconds since the
 * clock's zero. Threads have numbers of 0 and above.
 */
#ifndef FAKE_VIRTUAL_CLOCK_H
#define FAKE_VIRTUAL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Open the node's clock. Time starts when `processes` processes have entered. At the start smaller ranks run first, and those
 * without a rank (-1) in order of arrival. Returns false with errno set.
 */
bool virtual_clock_open(const char *folder, int processes, int rank);

uint64_t virtual_clock_now(void);

/* Let the calling thread take part. Returns when it may run. */
void virtual_clock_enter(void);

/* End the calling thread's part. */
void virtual_clock_leave(void);

bool virtual_clock_is_inside(void);

/* Sleep; the thread enters first if necessary. A time in the past lets those run that are due before it. */
void virtual_clock_sleep_until(uint64_t at_ns);

/*
 * A new thread: its creator reserves a number (-1 if there is no room), and the thread adopts it, or the creator drops it if the
 * thread could not be created.
 */
int virtual_clock_reserve(void);
void virtual_clock_adopt(int thread);
void virtual_clock_drop(int thread);

/* Wait until a thread of this process has left. */
void virtual_clock_await(int thread);

/* End the part of all threads of this process. */
void virtual_clock_close(void);

#endif
