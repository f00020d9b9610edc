/*
 * The rule by which the contexts of a device take turns: arithmetic only, on values.
 *
 * Knows no clock, no lock, no shared memory. schedule.c runs it on what is, and on a copy to see what will be.
 */
#ifndef FAKE_TURNS_H
#define FAKE_TURNS_H

#include <stdbool.h>
#include <stdint.h>

enum { TURNS_CONTEXTS_MAX = 256 };

struct turns {
    uint64_t at_ns;       /* settled up to here; ahead of the clock while the device switches */
    uint64_t turn_end_ns; /* when the runner must make room, if another has work */
    int runner;           /* whose turn it is or was last */
};

struct turns_rule {
    uint64_t quantum_ns, switch_ns;
};

/* A time in which one context runs. */
struct stretch {
    int context;
    uint64_t from_ns, to_ns;
};

/*
 * Take the next stretch, which ends at `limit_ns` or where the device's work or the turn ends; `left_ns` is the work of each of `count`
 * contexts, from which the caller subtracts. Returns false, with turns->at_ns at or after the limit, when nothing runs until then.
 */
bool turns_next(struct turns *turns, const struct turns_rule *rule, const uint64_t *left_ns, int count, uint64_t limit_ns,
                struct stretch *stretch);

#endif
