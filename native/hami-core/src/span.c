#include "span.h"

#include "meter.h"

/* More than may be queued on all devices together, see limiter.c. */
enum { SPANS_MAX = 2048 };

/* The steps in which a span's estimate is accounted for. */
#define PROGRESS_NS 1024u

/* Some turns of the device, which are about two milliseconds; and what is over long before one. */
#define LONG_NS 10000000u
#define BRIEF_NS 100000u

static struct hami_span pool[SPANS_MAX], *unused;
static unsigned made;

void hami_spans_forget(void)
{
    unused = NULL;
    made = 0;
}

static struct hami_span *take(void)
{
    struct hami_span *span = unused;

    if (span)
        unused = span->next;
    else if (made < SPANS_MAX)
        span = &pool[made++];
    return span;
}

void hami_span_add(struct hami_spans *spans, int device, const struct hami_span *filled, uint64_t now_ns)
{
    struct hami_meter *meter = &hami_meters[device];
    struct hami_span *span = take();

    if (!span) {
        hami_stamp_drop(filled->from);
        return;
    }
    *span = *filled;
    span->others_ns = hami_meter_others_ns(device);
    span->alone_ns = hami_meter_occupied_ns(meter, filled->prepaid_ns);
    span->queued_ns = span->estimate_ns = filled->prepaid_ns;
    span->prepaid_ns = hami_meter_believed(device, filled->prepaid_ns);
    span->standing_ns = filled->prepaid_ns - span->prepaid_ns;
    hami_stamp_hold(span->to);
    if (!meter->queued_launches)
        meter->progress_ns = now_ns;
    meter->queued_ns += span->queued_ns;
    meter->queued_launches += span->launches;
    if (spans->first)
        spans->last->next = span;
    else
        spans->first = span;
    spans->last = span;
}

static void drop_first(struct hami_spans *spans, int device)
{
    struct hami_meter *meter = &hami_meters[device];
    struct hami_span *span = spans->first;

    spans->first = span->next;
    hami_stamp_drop(span->from);
    hami_stamp_drop(span->to);
    hami_meter_count(device, span->standing_ns + span->prepaid_ns);
    meter->queued_ns -= span->queued_ns;
    meter->queued_launches -= span->launches;
    span->next = unused;
    unused = span;
}

void hami_spans_drop(struct hami_spans *spans, int device)
{
    while (spans->first)
        drop_first(spans, device);
}

/* So much of what was estimated is done: the part of it that stands is accounted for. */
static void progress(struct hami_span *span, int device, uint64_t done_ns)
{
    uint64_t parts = span->queued_ns / PROGRESS_NS;
    uint64_t standing = done_ns == span->queued_ns || !parts ? span->standing_ns : span->standing_ns / parts * (done_ns / PROGRESS_NS);

    hami_meter_count(device, standing);
    span->standing_ns -= standing;
    span->queued_ns -= done_ns;
    hami_meters[device].queued_ns -= done_ns;
}

static void pay(struct hami_span *span, int device, uint64_t from_ns, uint64_t to_ns, uint64_t now_ns)
{
    uint64_t begin = span->paid_until_ns ? span->paid_until_ns : from_ns;
    uint64_t cost = hami_meter_pay(device, begin, to_ns, &span->prepaid_ns, now_ns);
    uint64_t done = cost < span->queued_ns ? cost : span->queued_ns;

    span->cost_ns += cost;
    span->own_ns += hami_meter_own(device, begin, to_ns);
    progress(span, device, done);
    span->paid_until_ns = to_ns > begin ? to_ns : begin;
}

/*
 * A launch that lasted for many turns of the device had its part of them; of a shorter one all may be its own but what others did. What it
 * was believed to cost stands between that and its length: when the price changes, the factor (meter.h) says what it costs now. Beside
 * other containers those that are shorter than was believed are those that were not interrupted, which says the less the more are: else
 * kernels of many lengths would count for their shortest. Brief ones hardly ever are.
 */
static void learn_kernel(const struct hami_span *span, int device, uint64_t timed_ns)
{
    uint64_t mean = atomic_load_explicit(&span->kernel->cost_ns, memory_order_relaxed);
    uint64_t priced = hami_meter_priced(device, timed_ns), others = hami_meter_others_ns(device) - span->others_ns;
    struct hami_sample sample = {priced, priced, priced > timed_ns ? priced : timed_ns};

    if (timed_ns < LONG_NS)
        sample.least_ns = priced > others ? hami_meter_believed(device, priced - others) : 0;
    if (timed_ns >= BRIEF_NS && timed_ns < LONG_NS && !others && mean > sample.most_ns)
        sample.most_ns = mean - hami_meter_believed(device, mean - sample.most_ns);
    hami_kernel_learn(span->kernel, &sample);
}

/* What a launch paid in advance whose cost was not known says nothing of its kind; what it turned out to cost does. */
static void end(struct hami_span *span, int device, uint64_t from_ns, uint64_t to_ns, uint64_t now_ns)
{
    bool is_probe = span->kernel && !atomic_load_explicit(&span->kernel->cost_ns, memory_order_relaxed);

    pay(span, device, from_ns, to_ns, now_ns);
    if (span->kernel)
        learn_kernel(span, device, to_ns - from_ns);
    if (is_probe)
        span->alone_ns = atomic_load(&span->kernel->cost_ns);
    hami_meter_learn(device, span->alone_ns, span->cost_ns);
    hami_meter_use(device, (int64_t)(span->own_ns - span->estimate_ns));
    hami_meter_debit(device, now_ns, -(int64_t)span->prepaid_ns);
    span->prepaid_ns = 0;
    hami_meters[device].progress_ns = now_ns;
}

/* Returns false when the device has not reached the span's end. */
static bool collect(struct hami_span *span, int device, uint64_t now_ns, const struct hami_stamp *tail, uint64_t *idle_ns)
{
    uint64_t from = 0, to = 0;
    enum hami_stamp_state begun = hami_stamp_ask(span->from, &from);
    enum hami_stamp_state ended = begun == HAMI_STAMP_REACHED ? hami_stamp_ask(span->to, &to) : begun;

    if (ended == HAMI_STAMP_REACHED) {
        to = to > from ? to : from;
        end(span, device, from, to, now_ns);
        if (span->to == tail)
            *idle_ns = to;
    } else if (ended == HAMI_STAMP_AHEAD && begun == HAMI_STAMP_REACHED && now_ns > from && now_ns - from < HAMI_PATIENCE_NS) {
        pay(span, device, from, now_ns, now_ns);
    }
    return ended != HAMI_STAMP_AHEAD;
}

void hami_spans_collect(struct hami_spans *spans, int device, uint64_t now_ns, const struct hami_stamp *tail, uint64_t *idle_ns)
{
    while (spans->first && collect(spans->first, device, now_ns, tail, idle_ns))
        drop_first(spans, device);
}
