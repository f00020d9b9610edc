/*
 * The trace: for each launch what it paid and what it waited for, and for each interval what it cost. Read it with
 * `python -m hamicommon region --trace FILE`.
 *
 * Owns the file `<region>.trace-1`, a ring of the last HAMI_TRACE_ENTRIES entries of all processes of the container. It is made at
 * LIBCUDA_LOG_LEVEL 4, by the first launch under a limit. Then launches have no leases (stream.h), so that each is traced, and cost
 * more. Any content of the file is valid. Without the level a launch on a lease costs nothing more, and any other one load.
 * Safe in any thread; takes no lock.
 */
#ifndef HAMI_TRACE_H
#define HAMI_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "waits.h"

#define HAMI_TRACE_SUFFIX ".trace-1"
#define HAMI_TRACE_MAGIC 0x312d454341525448u /* HTRACE-1 */
enum { HAMI_TRACE_ENTRIES = 4096 };

/* How a launch paid, or that the entry is an interval. */
enum hami_trace_type {
    HAMI_TRACE_ESTIMATE = 1, /* the estimate of its kind */
    HAMI_TRACE_ADVANCE = 2,  /* its kind was unknown */
    HAMI_TRACE_UNTIMED = 3,  /* another thread was in a slow call of the driver */
    HAMI_TRACE_INTERVAL = 4, /* what launches cost between two events */
};

struct hami_trace_entry {
    _Atomic uint64_t number; /* counts from 1; 0 while the entry is written */
    uint64_t at_ns; /* the monotonic clock */
    uint64_t kind; /* of the launch (kernel_cost.h); of an interval of several launches 0 */
    uint64_t stream; /* its number in the process; 0 if unknown */
    int32_t pid;
    uint16_t device, type;
    uint64_t paid_ns; /* of an interval: what it cost */
    uint32_t waited_us[HAMI_WAIT_PRIORITY]; /* by reason: share, queue, cost. Of an interval: 0, and how many launches */
    uint32_t estimate_us; /* of an interval: what its launches had paid */
};

struct hami_trace {
    uint64_t magic;
    _Atomic uint64_t next; /* how many entries were begun */
    uint64_t unused[6];
    struct hami_trace_entry entries[HAMI_TRACE_ENTRIES];
};

_Static_assert(sizeof(struct hami_trace_entry) == 64, "an entry is 64 bytes");
_Static_assert(offsetof(struct hami_trace, entries) == 64, "the header is 64 bytes");

/* The mapping; NULL while there is none. Set by hami_trace_begin(). */
extern struct hami_trace *_Atomic hami_trace;

static inline bool hami_trace_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&hami_trace, memory_order_relaxed) != NULL, 0);
}

/* Make and map the file if the level asks for it. Costs one load after the first call. */
void hami_trace_begin(void);

/* Add an entry; `number`, `at_ns` and `pid` are filled in. Only while the trace is on. */
void hami_trace_add(const struct hami_trace_entry *entry);

#endif
