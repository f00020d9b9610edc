/*
 * Which context each of the node's devices runs, and when.
 *
 * Owns the file `schedule` in FAKE_DRIVER_DIR, which all processes of the node share, and the order of contexts. A device runs one
 * context at a time. While several have work, they run in a round robin with slices of FAKE_DRIVER_QUANTUM_US (2000). The device
 * needs FAKE_DRIVER_SWITCH_US (100) to interrupt a context that is not done; one that is done costs nothing. Clients of MPS run side by
 * side as far as their multiprocessors allow (round_robin.h). With FAKE_DRIVER_MPS=1
 * all contexts run at the same time, each as if it were alone.
 *
 * Knows nothing of kernels and streams. A context has its own clock, which advances only while the device runs it. The folder `cuda`
 * places work on that clock and calls schedule_promise() to say how far it reaches. There is no simulation ahead: the first process that
 * asks brings the device up to date, because the past does not depend on the future.
 *
 * Times are nanoseconds: `_at` on a context's clock, which starts at 0, `_ns` on the node's clock. A process that ends takes its
 * unfinished work with it. Fork: a child has none of its parent's contexts.
 */
#ifndef FAKE_SCHEDULE_H
#define FAKE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SCHEDULE_CONTEXTS_MAX = 256 };

/* What one process did on a device in an interval. */
struct schedule_use {
    uint64_t process; /* distinguishes processes with the same pid */
    pid_t pid;        /* as getpid() returns it in the process */
    uint64_t busy_ns;
};

/* Open the node's schedule once per process. Returns false, with a reason on stderr, if that fails. */
bool schedule_open(void);

/* Take a device's lock and bring it up to date. Returns the time. schedule_unlock() releases it; the holder's death does too. */
uint64_t schedule_lock(int device);
void schedule_unlock(int device);

/* A client of MPS. */
struct schedule_client {
    uint64_t number; /* distinguishes clients; 0: not a client */
    unsigned int multiprocessors;
};

/*
 * Open a context without work, of a client of MPS or not; -1 if there are too many. Closing drops its unfinished work. The caller
 * holds the lock.
 */
int schedule_context_open(int device, struct schedule_client client);
void schedule_context_close(int context);

/* The caller of the following functions holds the lock of the context's device. */

/* Return how far the context has come. */
uint64_t schedule_reached_at(int context);

/* Return a number of the process that has the context open; 0 if none has, or it is dead. */
uint64_t schedule_owner(int context);

/* Promise that the context has work until a later time than before. */
void schedule_promise(int context, uint64_t at);

/* Return when the context reached a time. A time older than the kept slices (half a minute of them at least) becomes the oldest kept. */
uint64_t schedule_when_ns(int context, uint64_t at);

/* Return when the context will reach a time, or an earlier time at which to ask again; later than now. */
uint64_t schedule_expect_ns(int context, uint64_t at);

/* Whether a client has work on a device, or with `or_had` was killed while it had some. Takes the lock itself. */
bool schedule_client_has_work(int device, uint64_t client, bool or_had);

/* The following functions take the lock themselves. They are exact for whole milliseconds of about the last two minutes. */

/* Return the time within [from_ns, to_ns) in which the device ran work of a process, or of any process if pid is 0. */
uint64_t schedule_busy_ns(int device, pid_t pid, uint64_t from_ns, uint64_t to_ns);

/* Fill `uses`, with room for SCHEDULE_CONTEXTS_MAX, with the processes that were busy within [from_ns, to_ns). Returns how many. */
int schedule_uses(int device, uint64_t from_ns, uint64_t to_ns, struct schedule_use *uses);

#endif
