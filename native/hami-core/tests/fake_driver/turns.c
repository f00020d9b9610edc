#include "turns.h"

enum { NOBODY = -1 };

/* The first in the circle after `context` that has work: `context` itself comes last. */
static int next_with_work(const uint64_t *left_ns, int count, int context)
{
    for (int step = 1; step <= count; step++) {
        int candidate = (context + step) % count;

        if (left_ns[candidate])
            return candidate;
    }
    return NOBODY;
}

static void begin_turn(struct turns *turns, const struct turns_rule *rule, int context)
{
    turns->runner = context;
    turns->turn_end_ns = turns->at_ns + rule->quantum_ns;
}

/* Turns of one that is alone follow each other, so that a newcomer waits for the end of one. */
static void renew_turn(struct turns *turns, const struct turns_rule *rule)
{
    if (turns->at_ns >= turns->turn_end_ns)
        turns->turn_end_ns += ((turns->at_ns - turns->turn_end_ns) / rule->quantum_ns + 1) * rule->quantum_ns;
}

bool turns_next(struct turns *turns, const struct turns_rule *rule, const uint64_t *left_ns, int count, uint64_t limit_ns,
                struct stretch *stretch)
{
    while (turns->at_ns < limit_ns) {
        int next = next_with_work(left_ns, count, turns->runner);
        uint64_t end;

        if (next == NOBODY) {
            turns->at_ns = limit_ns;
            begin_turn(turns, rule, turns->runner);
            return false;
        }
        if (turns->runner >= count || !left_ns[turns->runner]) {
            begin_turn(turns, rule, next);
            continue;
        }
        if (next != turns->runner && turns->at_ns >= turns->turn_end_ns) {
            turns->at_ns += rule->switch_ns;
            begin_turn(turns, rule, next);
            continue;
        }
        end = turns->at_ns + left_ns[turns->runner];
        if (next != turns->runner && end > turns->turn_end_ns)
            end = turns->turn_end_ns;
        *stretch = (struct stretch){turns->runner, turns->at_ns, end < limit_ns ? end : limit_ns};
        turns->at_ns = stretch->to_ns;
        if (next == turns->runner)
            renew_turn(turns, rule);
        return true;
    }
    return false;
}
