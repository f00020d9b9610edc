/*
 * The round robin of a device's contexts: arithmetic on values only.
 *
 * An ordinary context has the whole device in its slice. The clients of MPS have one slice together. In it runs the client whose turn
 * it is, and beside it each client after it whose multiprocessors are still free. Their turns cost no switch.
 *
 * Uses no clock, no lock, no shared memory. schedule.c applies it to the present state, and to a copy to look ahead.
 */
#ifndef FAKE_ROUND_ROBIN_H
#define FAKE_ROUND_ROBIN_H

#include <stdbool.h>
#include <stdint.h>

enum { ROUND_ROBIN_CONTEXTS_MAX = 256 };

struct round_robin {
    uint64_t at_ns;       /* settled up to here; ahead of the clock while the device switches */
    uint64_t slice_end_ns; /* when the runner must stop if another context has work */
    int runner;           /* the context that runs or ran last */
    int last_client;      /* the client of MPS that ran last */
};

struct round_robin_rule {
    uint64_t quantum_ns, switch_ns;
    unsigned int multiprocessors;
};

/* What a context still has to do. */
struct round_robin_work {
    uint64_t left_ns;
    unsigned int multiprocessors; /* of a client of MPS; 0: an ordinary context */
};

/* An interval in which contexts run. */
struct stretch {
    int contexts[ROUND_ROBIN_CONTEXTS_MAX];
    int count;
    uint64_t from_ns, to_ns;
};

/*
 * Take the next interval. It ends at `limit_ns`, or with the slice or the device's work. `work` is the remaining work of each of
 * `count` contexts, from which the caller subtracts. Returns false, with order->at_ns at or after the limit, if nothing runs until
 * then.
 */
bool round_robin_next(struct round_robin *order, const struct round_robin_rule *rule, const struct round_robin_work *work,
                      int count, uint64_t limit_ns, struct stretch *stretch);

#endif
