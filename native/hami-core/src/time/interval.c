#include "interval.h"

#include "probes.h"
#include "trace.h"

/* More launches than limiter.c lets wait on a device. */
enum { INTERVALS_MAX = 2048 };

/* The steps in which an interval's estimate is accounted for. */
#define PROGRESS_NS 1024u

/* LONG: several time slices of the device, which last about two milliseconds. BRIEF: much less than one. */
#define LONG_NS 10000000u
#define BRIEF_NS 100000u

/* The intervals of each device, which its lock protects. */
static struct pool {
    struct hami_interval entries[INTERVALS_MAX], *unused;
    unsigned made;
} pools[HAMI_DEVICES_MAX];

void hami_intervals_forget(void)
{
    for (struct pool *pool = pools; pool < pools + HAMI_DEVICES_MAX; pool++) {
        pool->unused = NULL;
        pool->made = 0;
    }
}

static struct hami_interval *take(struct pool *pool)
{
    struct hami_interval *interval = pool->unused;

    if (interval)
        pool->unused = interval->next;
    else if (pool->made < INTERVALS_MAX)
        interval = &pool->entries[pool->made++];
    return interval;
}

/* Add to what is queued; negative to take away. */
static void count(struct hami_intervals *intervals, int device, int64_t ns, int launches)
{
    struct hami_meter *meter = &hami_meters[device];

    intervals->queued_ns += (uint64_t)ns;
    intervals->queued_launches += (unsigned)launches;
    if (intervals->is_uncounted)
        return;
    meter->queued_ns += (uint64_t)ns;
    meter->queued_launches += (unsigned)launches;
}

static void set_uncounted(struct hami_intervals *intervals, int device, bool is_uncounted)
{
    struct hami_meter *meter = &hami_meters[device];

    if (is_uncounted == intervals->is_uncounted)
        return;
    intervals->is_uncounted = is_uncounted;
    meter->queued_ns += is_uncounted ? -intervals->queued_ns : intervals->queued_ns;
    meter->queued_launches += is_uncounted ? -intervals->queued_launches : intervals->queued_launches;
}

void hami_intervals_note_wait(struct hami_intervals *intervals, int device)
{
    intervals->waits++;
    set_uncounted(intervals, device, true);
}

static bool is_probe_of(const struct hami_interval *interval, uint64_t kernel_key)
{
    return interval->advance_ns && interval->kernel_key == kernel_key;
}

bool hami_intervals_have_probe(const struct hami_intervals *intervals, uint64_t kernel_key)
{
    const struct hami_interval *interval = intervals->probes ? intervals->first : NULL;

    while (interval && !is_probe_of(interval, kernel_key))
        interval = interval->next;
    return interval != NULL;
}

bool hami_intervals_run_probe(const struct hami_intervals *intervals, uint64_t kernel_key)
{
    return intervals->probes && intervals->first->paid_until_ns && is_probe_of(intervals->first, kernel_key);
}

static void become_first(struct hami_intervals *intervals, struct hami_interval *interval, uint64_t now_ns)
{
    intervals->first = interval;
    intervals->moved_ns = now_ns;
}

void hami_interval_add(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_interval *filled)
{
    int device = now->device;
    struct hami_meter *meter = &hami_meters[device];
    struct hami_interval *interval = take(&pools[device]);

    if (!interval) {
        hami_meter_guess(filled->kernel);
        hami_probes_end(now, filled->advance_ns);
        hami_event_drop(filled->from);
        return;
    }
    *interval = *filled;
    interval->others_ns = hami_meter_others_ns(device);
    interval->alone_ns = hami_meter_occupied_ns(meter, filled->prepaid_ns);
    interval->queued_ns = interval->estimate_ns = filled->prepaid_ns;
    interval->prepaid_ns = filled->advance_ns ? filled->prepaid_ns : hami_meter_believed(device, filled->prepaid_ns);
    interval->standing_ns = filled->prepaid_ns - interval->prepaid_ns;
    hami_event_retain(interval->to);
    interval->waits = intervals->waits;
    count(intervals, device, (int64_t)interval->queued_ns, (int)interval->launches);
    intervals->probes += interval->advance_ns != 0;
    if (intervals->first)
        intervals->last->next = interval;
    else
        become_first(intervals, interval, now->ns);
    intervals->last = interval;
}

/* Return what was debited for an interval. */
static uint64_t debited(const struct hami_interval *interval)
{
    return interval->estimate_ns + interval->due_ns;
}

static void drop_first(struct hami_intervals *intervals, int device, uint64_t now_ns)
{
    struct hami_interval *interval = intervals->first;

    if (interval->is_aside)
        hami_meter_end_aside(&(struct hami_device_now){.device = device}, debited(interval));
    become_first(intervals, interval->next, now_ns);
    hami_event_drop(interval->from);
    hami_event_drop(interval->to);
    hami_meter_count(device, interval->standing_ns + interval->prepaid_ns);
    count(intervals, device, -(int64_t)interval->queued_ns, -(int)interval->launches);
    intervals->probes -= interval->advance_ns != 0;
    interval->next = pools[device].unused;
    pools[device].unused = interval;
}

void hami_intervals_drop(struct hami_intervals *intervals, int device)
{
    while (intervals->first)
        drop_first(intervals, device, 0);
}

/* Account for the part of the estimate that is kept, as far as the work is done. */
static void progress(struct hami_intervals *intervals, int device, uint64_t done_ns)
{
    struct hami_interval *interval = intervals->first;
    uint64_t parts = interval->queued_ns / PROGRESS_NS;
    uint64_t standing =
        done_ns == interval->queued_ns || !parts ? interval->standing_ns : interval->standing_ns / parts * (done_ns / PROGRESS_NS);

    hami_meter_count(device, standing);
    interval->standing_ns -= standing;
    interval->queued_ns -= done_ns;
    count(intervals, device, -(int64_t)done_ns, 0);
}

static void pay(struct hami_intervals *intervals, const struct hami_device_now *now, uint64_t from_ns, uint64_t to_ns)
{
    struct hami_interval *interval = intervals->first;
    uint64_t since = interval->paid_until_ns ? interval->paid_until_ns : from_ns, before = interval->due_ns;
    uint64_t cost = hami_meter_pay(now->device, since, to_ns, &interval->prepaid_ns, &interval->due_ns);
    uint64_t done = cost < interval->queued_ns ? cost : interval->queued_ns;

    if (interval->is_aside) {
        hami_meter_debit_first(now, (int64_t)(interval->due_ns - before));
        hami_meters[now->device].set_aside_ns += interval->due_ns - before;
    } else {
        hami_meter_debit(now, (int64_t)(interval->due_ns - before));
    }
    interval->cost_ns += cost;
    interval->own_ns += hami_meter_own(now->device, since, to_ns);
    progress(intervals, now->device, done);
    interval->paid_until_ns = to_ns > since ? to_ns : since;
}

/* Return the kind of an interval's only launch; NULL if there are several, or if another kind has taken its entry. */
static struct hami_kernel *kind_of(const struct hami_interval *interval)
{
    struct hami_kernel *kernel = interval->kernel;

    return kernel && atomic_load_explicit(&kernel->key, memory_order_relaxed) == interval->kernel_key ? kernel : NULL;
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
static void learn_kernel(struct hami_kernel *kernel, const struct hami_interval *interval, int device, uint64_t timed_ns)
{
    uint64_t mean = atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);
    uint64_t priced = hami_meter_priced(device, timed_ns), others = hami_meter_others_ns(device) - interval->others_ns;
    struct hami_sample sample = {priced, priced, priced > timed_ns ? priced : timed_ns};

    if (timed_ns < LONG_NS)
        sample.least_ns = priced > others ? hami_meter_believed(device, priced - others) : 0;
    if (timed_ns >= BRIEF_NS && timed_ns < LONG_NS && !others && mean > sample.most_ns)
        sample.most_ns = mean - hami_meter_believed(device, mean - sample.most_ns);
    hami_kernel_learn(kernel, &sample);
}

static void trace(const struct hami_interval *interval, int device)
{
    hami_trace_add(&(struct hami_trace_entry){.kind = interval->kernel ? interval->kernel_key : 0,
                                              .device = (uint16_t)device,
                                              .type = HAMI_TRACE_INTERVAL,
                                              .paid_ns = interval->cost_ns,
                                              .waited_us = {0, interval->launches},
                                              .estimate_us = (uint32_t)(interval->estimate_ns / 1000)});
}

/*
 * What a probe was charged before it ran says nothing about its cost. The part of it that intervals do not decide (meter.h) is charged
 * now that the cost is known.
 */
static void end_probe(const struct hami_interval *interval, const struct hami_device_now *now, uint64_t timed_ns)
{
    struct hami_meter *meter = &hami_meters[now->device];
    uint64_t alone = hami_meter_priced(now->device, timed_ns), cost = hami_meter_together(meter, alone);
    uint64_t kept = cost - hami_meter_believed(now->device, cost);

    hami_probes_learn(meter, alone);
    hami_meter_debit(now, (int64_t)kept);
    hami_meter_count(now->device, kept);
    hami_probes_end(now, interval->advance_ns);
}

static void end(struct hami_intervals *intervals, const struct hami_device_now *now, uint64_t from_ns, uint64_t to_ns)
{
    struct hami_interval *interval = intervals->first;
    int device = now->device;
    struct hami_kernel *kernel = kind_of(interval);

    pay(intervals, now, from_ns, to_ns);
    if (hami_trace_is_on())
        trace(interval, device);
    if (kernel)
        learn_kernel(kernel, interval, device, to_ns - from_ns);
    if (interval->advance_ns)
        end_probe(interval, now, to_ns - from_ns);
    if (interval->kernel && (interval->advance_ns || interval->is_aside))
        interval->alone_ns = hami_meter_priced(device, to_ns - from_ns);
    hami_meter_learn(device, interval->alone_ns, interval->cost_ns);
    hami_meter_use(device, (int64_t)(interval->own_ns - interval->estimate_ns));
    hami_meter_debit(now, -(int64_t)interval->prepaid_ns);
    interval->prepaid_ns = 0;
    if (interval->is_aside)
        hami_meter_end_aside(now, debited(interval));
    interval->is_aside = false;
    hami_meters[device].progress_ns = now->ns;
    if (from_ns > hami_meters[device].ended_from_ns)
        hami_meters[device].ended_from_ns = from_ns;
}

/*
 * Charge an interval that still runs. If it has run for long, launches stop waiting for it, except those of its kind: they are
 * expected to run for as long.
 */
static void collect_running(struct hami_intervals *intervals, const struct hami_device_now *now, uint64_t from_ns)
{
    struct hami_interval *interval = intervals->first;
    uint64_t length_ns = now->ns > from_ns ? now->ns - from_ns : 0;
    struct hami_kernel *kernel = kind_of(interval);

    pay(intervals, now, from_ns, now->ns);
    if (interval->advance_ns && length_ns >= HAMI_GUESS_NS)
        hami_probes_learn_of_long(&hami_meters[now->device]);
    if (length_ns < HAMI_PATIENCE_NS)
        return;
    if (kernel)
        hami_kernel_outlast(kernel, hami_meter_priced(now->device, length_ns));
    hami_meter_set_aside(now, from_ns, interval->is_aside ? 0 : debited(interval));
    interval->is_aside = true;
}

/* The device has reached an interval's begin: its stream moves on, and has passed what was queued before it. */
static void begin(struct hami_intervals *intervals, uint64_t from_ns)
{
    struct hami_interval *interval = intervals->first;

    intervals->passed_waits = interval->waits;
    if (from_ns > intervals->moved_ns)
        intervals->moved_ns = from_ns;
}

/*
 * Collect the first interval. Returns false if the device has not reached its end. An interval whose events cannot be read keeps
 * its estimates.
 */
static bool collect(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_event *tail,
                    uint64_t *idle_ns)
{
    struct hami_interval *interval = intervals->first;
    uint64_t from = 0, to = 0;
    enum hami_event_state begun = hami_event_ask(interval->from, &from);
    enum hami_event_state ended = begun == HAMI_EVENT_REACHED ? hami_event_ask(interval->to, &to) : begun;

    if (begun == HAMI_EVENT_REACHED) {
        from = from > interval->not_before_ns ? from : interval->not_before_ns;
        begin(intervals, from);
    }
    if (ended == HAMI_EVENT_REACHED) {
        to = to > from ? to : from;
        end(intervals, now, from, to);
        if (interval->to == tail)
            *idle_ns = to;
    } else if (ended == HAMI_EVENT_AHEAD && begun == HAMI_EVENT_REACHED) {
        collect_running(intervals, now, from);
    } else if (ended == HAMI_EVENT_LOST) {
        hami_meter_guess(kind_of(interval));
        hami_probes_end(now, interval->advance_ns);
    }
    return ended != HAMI_EVENT_AHEAD;
}

/*
 * Whether the first interval may be held back. It is slow, and nothing else ends either, or what began after it has ended, so it
 * does not wait for its turn on the device.
 */
static bool may_be_held(const struct hami_intervals *intervals, const struct hami_device_now *now)
{
    const struct hami_meter *meter = &hami_meters[now->device];

    return intervals->first && now->ns - intervals->moved_ns >= HAMI_PATIENCE_NS &&
           (now->ns - meter->progress_ns >= HAMI_PATIENCE_NS || meter->ended_from_ns > intervals->moved_ns);
}

void hami_intervals_collect(struct hami_intervals *intervals, const struct hami_device_now *now, const struct hami_event *tail,
                            uint64_t *idle_ns)
{
    while (intervals->first && collect(intervals, now, tail, idle_ns))
        drop_first(intervals, now->device, now->ns);
    set_uncounted(intervals, now->device, hami_intervals_may_wait(intervals) || may_be_held(intervals, now));
}
