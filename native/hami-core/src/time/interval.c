#include "interval.h"

/* More launches than limiter.c lets wait on all devices together. */
enum { INTERVALS_MAX = 2048 };

/* The steps in which an interval's estimate is accounted for. */
#define PROGRESS_NS 1024u

/* LONG: several time slices of the device, which last about two milliseconds. BRIEF: much less than one. */
#define LONG_NS 10000000u
#define BRIEF_NS 100000u

static struct hami_interval pool[INTERVALS_MAX], *unused;
static unsigned made;

void hami_intervals_forget(void)
{
    unused = NULL;
    made = 0;
}

static struct hami_interval *take(void)
{
    struct hami_interval *interval = unused;

    if (interval)
        unused = interval->next;
    else if (made < INTERVALS_MAX)
        interval = &pool[made++];
    return interval;
}

void hami_interval_add(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_interval *filled)
{
    int device = now->device;
    struct hami_meter *meter = &hami_meters[device];
    struct hami_interval *interval = take();

    if (!interval) {
        hami_meter_guess(filled->kernel);
        hami_event_drop(filled->from);
        return;
    }
    *interval = *filled;
    interval->others_ns = hami_meter_others_ns(device);
    interval->alone_ns = hami_meter_occupied_ns(meter, filled->prepaid_ns);
    interval->queued_ns = interval->estimate_ns = filled->prepaid_ns;
    interval->prepaid_ns = hami_meter_believed(device, filled->prepaid_ns);
    interval->standing_ns = filled->prepaid_ns - interval->prepaid_ns;
    hami_event_hold(interval->to);
    if (!meter->queued_launches)
        meter->progress_ns = now->ns;
    meter->queued_ns += interval->queued_ns;
    meter->queued_launches += interval->launches;
    if (intervals->first)
        intervals->last->next = interval;
    else
        intervals->first = interval;
    intervals->last = interval;
}

/* Return what was debited for an interval. */
static uint64_t debited(const struct hami_interval *interval)
{
    return interval->estimate_ns + interval->due_ns;
}

static void drop_first(struct hami_intervals *intervals, int device)
{
    struct hami_meter *meter = &hami_meters[device];
    struct hami_interval *interval = intervals->first;

    if (interval->is_aside)
        hami_meter_end_aside(&(struct hami_device_now){.device = device}, debited(interval));
    intervals->first = interval->next;
    hami_event_drop(interval->from);
    hami_event_drop(interval->to);
    if (interval->kernel)
        atomic_store_explicit(&interval->kernel->probed_at_ns, 0, memory_order_relaxed);
    hami_meter_count(device, interval->standing_ns + interval->prepaid_ns);
    meter->queued_ns -= interval->queued_ns;
    meter->queued_launches -= interval->launches;
    interval->next = unused;
    unused = interval;
}

void hami_intervals_drop(struct hami_intervals *intervals, int device)
{
    while (intervals->first)
        drop_first(intervals, device);
}

/* Account for the part of the estimate that is kept, as far as the work is done. */
static void progress(struct hami_interval *interval, int device, uint64_t done_ns)
{
    uint64_t parts = interval->queued_ns / PROGRESS_NS;
    uint64_t standing =
        done_ns == interval->queued_ns || !parts ? interval->standing_ns : interval->standing_ns / parts * (done_ns / PROGRESS_NS);

    hami_meter_count(device, standing);
    interval->standing_ns -= standing;
    interval->queued_ns -= done_ns;
    hami_meters[device].queued_ns -= done_ns;
}

static void pay(struct hami_interval *interval, const struct hami_device_now *now, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t begin = interval->paid_until_ns ? interval->paid_until_ns : from_ns, before = interval->due_ns;
    uint64_t cost = hami_meter_pay(now->device, begin, to_ns, &interval->prepaid_ns, &interval->due_ns);
    uint64_t done = cost < interval->queued_ns ? cost : interval->queued_ns;

    if (interval->is_aside) {
        hami_meter_debit_aside(now, (int64_t)(interval->due_ns - before));
        hami_meters[now->device].set_aside_ns += interval->due_ns - before;
    } else {
        hami_meter_debit(now, (int64_t)(interval->due_ns - before));
    }
    interval->cost_ns += cost;
    interval->own_ns += hami_meter_own(now->device, begin, to_ns);
    progress(interval, now->device, done);
    interval->paid_until_ns = to_ns > begin ? to_ns : begin;
}

/*
 * Learn the cost of a kernel from its interval.
 *
 * A launch of many time slices had its share of them. Of a shorter one, everything may be its own except what other processes did.
 * The known cost is kept if it lies between these bounds. When the scale changes, the factor (meter.h) corrects it. Beside other
 * containers, the launches that are shorter than the known cost are mostly those that were not interrupted. They count the less,
 * the more containers there are; otherwise a kernel of varying length would count with its shortest. Brief kernels are rarely
 * interrupted.
 */
static void learn_kernel(const struct hami_interval *interval, int device, uint64_t timed_ns)
{
    uint64_t mean = atomic_load_explicit(&interval->kernel->cost_ns, memory_order_relaxed);
    uint64_t priced = hami_meter_priced(device, timed_ns), others = hami_meter_others_ns(device) - interval->others_ns;
    struct hami_sample sample = {priced, priced, priced > timed_ns ? priced : timed_ns};

    if (timed_ns < LONG_NS)
        sample.least_ns = priced > others ? hami_meter_believed(device, priced - others) : 0;
    if (timed_ns >= BRIEF_NS && timed_ns < LONG_NS && !others && mean > sample.most_ns)
        sample.most_ns = mean - hami_meter_believed(device, mean - sample.most_ns);
    hami_kernel_learn(interval->kernel, &sample);
}

/* The advance of a launch of unknown cost says nothing about its kind; its measured cost does. */
static void end(struct hami_interval *interval, const struct hami_device_now *now, uint64_t from_ns, uint64_t to_ns)
{
    int device = now->device;
    bool is_probe =
        interval->kernel && (interval->is_aside || !atomic_load_explicit(&interval->kernel->cost_ns, memory_order_relaxed));

    pay(interval, now, from_ns, to_ns);
    if (interval->kernel)
        learn_kernel(interval, device, to_ns - from_ns);
    if (is_probe)
        interval->alone_ns = atomic_load(&interval->kernel->cost_ns);
    hami_meter_learn(device, interval->alone_ns, interval->cost_ns);
    hami_meter_use(device, (int64_t)(interval->own_ns - interval->estimate_ns));
    hami_meter_debit(now, -(int64_t)interval->prepaid_ns);
    interval->prepaid_ns = 0;
    if (interval->is_aside)
        hami_meter_end_aside(now, debited(interval));
    interval->is_aside = false;
    hami_meters[device].progress_ns = now->ns;
}

/*
 * Charge an interval that still runs. If it has run for long, launches stop waiting for it, except those of its kind: they are
 * expected to run for as long.
 */
static void collect_running(struct hami_interval *interval, const struct hami_device_now *now, uint64_t from_ns)
{
    uint64_t length_ns = now->ns > from_ns ? now->ns - from_ns : 0;

    pay(interval, now, from_ns, now->ns);
    if (length_ns < HAMI_PATIENCE_NS)
        return;
    if (interval->kernel)
        hami_kernel_outlast(interval->kernel, hami_meter_priced(now->device, length_ns));
    hami_meter_set_aside(now, from_ns, interval->is_aside ? 0 : debited(interval));
    interval->is_aside = true;
}

/* Returns false if the device has not reached the interval's end. An interval whose events cannot be read keeps its estimates. */
static bool collect(struct hami_interval *interval, const struct hami_device_now *now, const struct hami_event *tail,
                    uint64_t *idle_ns)
{
    uint64_t from = 0, to = 0;
    enum hami_event_state begun = hami_event_ask(interval->from, &from);
    enum hami_event_state ended = begun == HAMI_EVENT_REACHED ? hami_event_ask(interval->to, &to) : begun;

    if (ended == HAMI_EVENT_REACHED) {
        to = to > from ? to : from;
        end(interval, now, from, to);
        if (interval->to == tail)
            *idle_ns = to;
    } else if (ended == HAMI_EVENT_AHEAD && begun == HAMI_EVENT_REACHED) {
        collect_running(interval, now, from);
    } else if (ended == HAMI_EVENT_LOST) {
        hami_meter_guess(interval->kernel);
    }
    return ended != HAMI_EVENT_AHEAD;
}

void hami_intervals_collect(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_event *tail,
                            uint64_t *idle_ns)
{
    while (intervals->first && collect(intervals->first, now, tail, idle_ns))
        drop_first(intervals, now->device);
}
