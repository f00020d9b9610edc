/*
 * What libfake_time.so exports beside the functions of libc that it stands in for. Reach them by dlsym or as weak symbols.
 *
 * Preloaded with FAKE_TIME unset, the library forwards everything. FAKE_TIME=virtual[:<processes>] gives all processes of a node
 * (FAKE_DRIVER_DIR) one virtual clock (virtual_clock.h); it stands still until that many processes have come, and FAKE_TIME_RANK
 * orders them. FAKE_TIME=scaled:<factor> makes the machine's clocks run that many times faster for those who read and sleep through
 * libc. All clocks that count time since some moment are affected; those that count CPU time are not.
 *
 * Every process that has it preloaded takes part, so a program that only starts others (env, timeout, a shell) must not have it: give it
 * to the programs themselves.
 *
 * A thread that waits for something else than time holds the virtual clock. Waiting in sleeps, in pthread_join and in waitpid is known;
 * around any other wait for what takes time (a pipe, a semaphore, a condition) a thread says so with fake_time_leave() and
 * fake_time_join(). Timed waits other than sleeps are not translated.
 */
#ifndef FAKE_TIME_H
#define FAKE_TIME_H

#include <stdbool.h>

/* Stop taking part, so that time passes without the calling thread; nothing when it does not take part. */
void fake_time_leave(void);

/* Take part again, or for the first time in a forked child. Returns when no other thread runs. */
void fake_time_join(void);

/* Whether time stands still while threads run. */
bool fake_time_is_virtual(void);

#endif
