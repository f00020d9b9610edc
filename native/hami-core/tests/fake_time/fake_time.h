/*
 * The functions that libfake_time.so exports besides libc's. Find them with dlsym or as weak symbols.
 *
 * If it is preloaded without FAKE_TIME, the library forwards everything. FAKE_TIME=virtual[:<processes>] gives all processes of a
 * node (FAKE_DRIVER_DIR) one virtual clock (virtual_clock.h). It stands still until that many processes have entered;
 * FAKE_TIME_RANK orders them. FAKE_TIME=scaled:<factor> makes the machine's clocks that many times faster for programs that read
 * and sleep through libc. It affects all clocks that count time since a moment, and none that count CPU time.
 *
 * Every process with the library takes part. So a program that only starts others (env, timeout, a shell) must not preload it; the
 * programs themselves do.
 *
 * A thread that waits for something other than time stops the virtual clock. Sleeps, pthread_join and waitpid are known waits.
 * Around any other wait for something that takes time (a pipe, a semaphore, a condition) a thread calls fake_time_leave() and
 * fake_time_join(). Timed waits other than sleeps are not translated.
 */
#ifndef FAKE_TIME_H
#define FAKE_TIME_H

#include <stdbool.h>

/* Stop taking part, so that time advances without the calling thread. Does nothing if it does not take part. */
void fake_time_leave(void);

/* Take part again, or in a forked child for the first time. Returns when no other thread runs. */
void fake_time_join(void);

/* Whether time stands still while threads run. */
bool fake_time_is_virtual(void);

#endif
