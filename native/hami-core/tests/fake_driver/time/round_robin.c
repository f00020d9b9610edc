#include "time/round_robin.h"

enum { NOBODY = -1 };
enum kind { ANY, ORDINARY, CLIENT };

/* Return the next context of a kind after `context` that has work; `context` itself comes last. */
static int next_of(enum kind kind, const struct round_robin_work *work, int count, int context)
{
    for (int step = 1; step <= count; step++) {
        int candidate = (context + step) % count;

        if (work[candidate].left_ns && (kind == ANY || (kind == CLIENT) == (work[candidate].multiprocessors > 0)))
            return candidate;
    }
    return NOBODY;
}

/* Return whose turn is next. After the clients' slice an ordinary context comes, and among clients the one after the last. */
static int next_with_work(const struct round_robin *order, const struct round_robin_work *work, int count)
{
    bool is_client = order->runner < count && work[order->runner].multiprocessors > 0;
    int next = next_of(is_client ? ORDINARY : ANY, work, count, order->runner);

    if (next == NOBODY && is_client)
        return next_of(CLIENT, work, count, order->runner);
    return next != NOBODY && work[next].multiprocessors ? next_of(CLIENT, work, count, order->last_client) : next;
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

/* Add the clients that run beside the first of a stretch, and end it with the shortest work. */
static void add_clients(struct stretch *stretch, const struct round_robin_rule *rule, const struct round_robin_work *work,
                        int count)
{
    int first = stretch->contexts[0];
    unsigned int taken = work[first].multiprocessors;

    for (int step = 1; taken && step < count; step++) {
        int candidate = (first + step) % count;
        const struct round_robin_work *other = &work[candidate];

        if (!other->left_ns || !other->multiprocessors || taken + other->multiprocessors > rule->multiprocessors)
            continue;
        taken += other->multiprocessors;
        stretch->contexts[stretch->count++] = candidate;
        if (stretch->from_ns + other->left_ns < stretch->to_ns)
            stretch->to_ns = stretch->from_ns + other->left_ns;
    }
}

/* When a client is done, another one takes over the rest of the clients' slice. */
static bool hand_over(struct round_robin *order, const struct round_robin_work *work, int count)
{
    int next = next_of(CLIENT, work, count, order->runner);

    if (!work[order->runner].multiprocessors || next == NOBODY || order->at_ns >= order->slice_end_ns)
        return false;
    order->runner = next;
    return true;
}

bool round_robin_next(struct round_robin *order, const struct round_robin_rule *rule, const struct round_robin_work *work,
                      int count, uint64_t limit_ns, struct stretch *stretch)
{
    while (order->at_ns < limit_ns) {
        int next = next_with_work(order, work, count);

        if (next == NOBODY) {
            order->at_ns = limit_ns;
            begin_slice(order, rule, order->runner);
            return false;
        }
        if (order->runner >= count || !work[order->runner].left_ns) {
            if (order->runner >= count || !hand_over(order, work, count))
                begin_slice(order, rule, next);
            continue;
        }
        if (next != order->runner && order->at_ns >= order->slice_end_ns) {
            if (!work[order->runner].multiprocessors || !work[next].multiprocessors)
                order->at_ns += rule->switch_ns;
            begin_slice(order, rule, next);
            continue;
        }
        stretch->contexts[0] = order->runner;
        stretch->count = 1;
        stretch->from_ns = order->at_ns;
        stretch->to_ns = order->at_ns + work[order->runner].left_ns;
        add_clients(stretch, rule, work, count);
        if (next != order->runner && stretch->to_ns > order->slice_end_ns)
            stretch->to_ns = order->slice_end_ns;
        if (stretch->to_ns > limit_ns)
            stretch->to_ns = limit_ns;
        order->at_ns = stretch->to_ns;
        if (work[order->runner].multiprocessors)
            order->last_client = order->runner;
        if (next == order->runner)
            renew_slice(order, rule);
        return true;
    }
    return false;
}
