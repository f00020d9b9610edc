#include "time/round_robin.h"

enum { NOBODY = -1 };

/* Return the next context after `context` that has work; `context` itself comes last. */
static int next_with_work(const uint64_t *left_ns, int count, int context)
{
    for (int step = 1; step <= count; step++) {
        int candidate = (context + step) % count;

        if (left_ns[candidate])
            return candidate;
    }
    return NOBODY;
}

static void begin_slice(struct round_robin *order, const struct round_robin_rule *rule, int context)
{
    order->runner = context;
    order->slice_end_ns = order->at_ns + rule->quantum_ns;
}

/* The slices of a single context follow each other, so a newcomer waits for the end of one. */
static void renew_slice(struct round_robin *order, const struct round_robin_rule *rule)
{
    if (order->at_ns >= order->slice_end_ns)
        order->slice_end_ns += ((order->at_ns - order->slice_end_ns) / rule->quantum_ns + 1) * rule->quantum_ns;
}

bool round_robin_next(struct round_robin *order, const struct round_robin_rule *rule, const uint64_t *left_ns, int count,
                      uint64_t limit_ns, struct stretch *stretch)
{
    while (order->at_ns < limit_ns) {
        int next = next_with_work(left_ns, count, order->runner);
        uint64_t end;

        if (next == NOBODY) {
            order->at_ns = limit_ns;
            begin_slice(order, rule, order->runner);
            return false;
        }
        if (order->runner >= count || !left_ns[order->runner]) {
            begin_slice(order, rule, next);
            continue;
        }
        if (next != order->runner && order->at_ns >= order->slice_end_ns) {
            order->at_ns += rule->switch_ns;
            begin_slice(order, rule, next);
            continue;
        }
        end = order->at_ns + left_ns[order->runner];
        if (next != order->runner && end > order->slice_end_ns)
            end = order->slice_end_ns;
        *stretch = (struct stretch){order->runner, order->at_ns, end < limit_ns ? end : limit_ns};
        order->at_ns = stretch->to_ns;
        if (next == order->runner)
            renew_slice(order, rule);
        return true;
    }
    return false;
}
