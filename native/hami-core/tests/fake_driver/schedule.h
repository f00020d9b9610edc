/*
 * When each of the node's devices runs whose work.
 *
 * Owns the file `schedule` in FAKE_DRIVER_DIR, which all processes of the node share, and the rule by which contexts take turns. A device
 * runs one context at a time. While several have work they take turns of FAKE_DRIVER_QUANTUM_US (2000) in a circle, and the device needs
 * FAKE_DRIVER_SWITCH_US (100) to interrupt one that is not done; one that is done makes room at no cost. With FAKE_DRIVER_MPS=1 all
 * contexts run at once, each as if it were alone.
 *
 * Knows nothing of kernels and streams. A context has a time of its own, which passes only while the device runs it: cuda_*.c place work
 * along that time and say by schedule_promise() how far it reaches. Nobody simulates ahead: whoever asks first brings the device up to
 * date, because what happened until now depends on nothing that comes later.
 *
 * Times are nanoseconds: `_at` on a context's own time, which starts at 0, `_ns` on the node's clock. A process that ends
 * takes its unfinished work with it. Fork: a child has none of its parent's contexts.
 */
#ifndef FAKE_SCHEDULE_H
#define FAKE_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SCHEDULE_CONTEXTS_MAX = 256 };

/* What one process did on a device in some span of time. */
struct schedule_use {
    uint64_t process; /* tells processes of equal pid apart */
    pid_t pid;        /* what it takes for its own */
    uint64_t busy_ns;
};

/* Open the node's schedule once a process. Returns false with a reason on stderr. */
bool schedule_open(void);

/* Take a device's lock and bring it up to date; returns what time it is. Dropped by schedule_unlock(), also when the holder dies. */
uint64_t schedule_lock(int device);
void schedule_unlock(int device);

/* A context with no work yet; -1 when there are too many. Closing drops what it has not done. The caller holds the lock. */
int schedule_context_open(int device);
void schedule_context_close(int context);

/* The caller of these holds the lock of the context's device. */

/* How far the context has come. */
uint64_t schedule_reached_at(int context);

/* The context has work until then; more than was promised before. */
void schedule_promise(int context, uint64_t at);

/* When the context got there. A time before all that is remembered (some thousand turns) becomes the oldest that is. */
uint64_t schedule_when_ns(int context, uint64_t at);

/* When the context will get there, or some earlier time at which to ask again; later than now. */
uint64_t schedule_expect_ns(int context, uint64_t at);

/* These take the lock themselves. They are exact for whole milliseconds of the last two minutes or so. */

/* Time within [from_ns, to_ns) in which the device ran work of a process, or of any when pid is 0. */
uint64_t schedule_busy_ns(int device, pid_t pid, uint64_t from_ns, uint64_t to_ns);

/* Fill `uses`, with room for SCHEDULE_CONTEXTS_MAX, with the processes that were busy within [from_ns, to_ns); returns how many. */
int schedule_uses(int device, uint64_t from_ns, uint64_t to_ns, struct schedule_use *uses);

#endif
