#include "meter.h"

#include <pthread.h>
#include <string.h>

#include "bucket.h"
#include "hooks.h"
#include "limiter.h"

enum { LANES_MAX = 256, REACH = 8, SPANS_MAX = 2048 };

/* What the estimates may be early by: the time between two launches of a program that does nothing else. */
#define DRY_TOLERANCE_NS 10000u

/* Launches are held to have to wait until none had to for so long. */
#define PAUSING_NS 100000000u

/* The factor follows the last half second or second of timed work, and begins with the belief that nothing overlaps. */
#define FACTOR_MEMORY_NS 500000000u
#define FACTOR_PRIOR_NS 20000000u
#define FACTOR_MIN (HAMI_ONE / 256)

/* What a launch is taken to cost that could not be timed. */
#define GUESS_NS 1000000u

#define NS_OF(used) ((used)&0xffffffffffu)
#define LAUNCHES_OF(used) ((unsigned)((used) >> 40))

struct hami_kernels hami_kernels;
struct hami_meter hami_meters[HAMI_DEVICES_MAX];

static struct hami_lane lanes[LANES_MAX];
static struct hami_span spans[SPANS_MAX], *free_spans;
static unsigned spans_made;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void hami_meter_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void hami_meter_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

void hami_meter_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset(&hami_kernels, 0, sizeof(hami_kernels));
    memset(hami_meters, 0, sizeof(hami_meters));
    memset(lanes, 0, sizeof(lanes));
    free_spans = NULL;
    spans_made = 0;
    hami_stamps_forget();
}

/* Charges */

static void debit(int device, uint64_t now_ns, int64_t gpu_ns)
{
    unsigned percent = hami_limiter_percent(device);
    struct hami_gpu_time *shared = hami_gpu_time();

    if (percent && shared && gpu_ns)
        hami_bucket_debit(&shared->devices[device].paid_at, now_ns, gpu_ns, percent);
}

/* Charge the device's being busy in [from, to): first from what is prepaid, the rest to the bucket. Returns the charge. */
static uint64_t charge(int device, uint64_t from_ns, uint64_t to_ns, uint64_t *prepaid_ns, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t scale, cost, covered;

    if (!shared || to_ns <= from_ns)
        return 0;
    scale = atomic_load_explicit(&shared->devices[device].scale, memory_order_relaxed);
    if (!scale || scale > 2 * HAMI_ONE)
        scale = HAMI_ONE;
    cost = hami_timeline_mark(&shared->timelines[device], from_ns, to_ns) * scale / HAMI_ONE;
    covered = cost < *prepaid_ns ? cost : *prepaid_ns;
    *prepaid_ns -= covered;
    hami_meters[device].own_ns += cost;
    debit(device, now_ns, (int64_t)(cost - covered));
    return cost;
}

/* Lanes */

struct hami_lane *hami_lane_find(uint64_t id)
{
    uint64_t place = id * 0x9e3779b97f4a7c15u >> 48;

    for (int step = 0; step < REACH; step++) {
        struct hami_lane *lane = &lanes[(place + (uint64_t)step) % LANES_MAX];

        if (atomic_load_explicit(&lane->id, memory_order_acquire) == id)
            return lane;
    }
    return NULL;
}

static void free_span(struct hami_meter *meter, struct hami_span *span)
{
    hami_stamp_drop(span->from);
    hami_stamp_drop(span->to);
    meter->queued_ns -= span->prepaid_ns < meter->queued_ns ? span->prepaid_ns : meter->queued_ns;
    meter->queued_launches -= span->launches;
    span->next = free_spans;
    free_spans = span;
}

static void empty_lane(struct hami_lane *lane)
{
    while (lane->first) {
        struct hami_span *span = lane->first;

        lane->first = span->next;
        free_span(&hami_meters[lane->device], span);
    }
    hami_stamp_drop(lane->tail);
    atomic_store(&lane->id, 0);
    atomic_store(&lane->used, 0);
}

struct hami_lane *hami_lane_make(uint64_t id, int device, CUstream stream, CUcontext context)
{
    uint64_t place = id * 0x9e3779b97f4a7c15u >> 48;
    struct hami_lane *lane = hami_lane_find(id);

    if (lane)
        return lane;
    lane = &lanes[place % LANES_MAX];
    for (int step = REACH - 1; step >= 0; step--)
        if (!lanes[(place + (uint64_t)step) % LANES_MAX].id)
            lane = &lanes[(place + (uint64_t)step) % LANES_MAX];
    empty_lane(lane);
    memset(lane, 0, sizeof(*lane));
    lane->device = device;
    lane->is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    lane->stream = stream;
    lane->stamps = hami_stamps_of(context);
    atomic_store_explicit(&lane->used, HAMI_LEASE_NS, memory_order_relaxed);
    atomic_store_explicit(&lane->id, id, memory_order_release);
    return lane;
}

bool hami_lane_is_dry(const struct hami_lane *lane, uint64_t now_ns)
{
    return now_ns > lane->idle_ns + DRY_TOLERANCE_NS;
}

/* The stream's own time for what is estimated to cost `estimate_ns`. */
static uint64_t raw_ns(const struct hami_lane *lane, uint64_t estimate_ns)
{
    uint64_t factor = atomic_load_explicit(&hami_meters[lane->device].factor, memory_order_relaxed);

    return factor ? estimate_ns * HAMI_ONE / factor : estimate_ns;
}

static void append(struct hami_lane *lane, uint64_t from_ns, uint64_t estimate_ns)
{
    lane->idle_ns = (lane->idle_ns > from_ns ? lane->idle_ns : from_ns) + raw_ns(lane, estimate_ns);
    lane->untimed_ns += estimate_ns;
}

void hami_lane_settle(struct hami_lane *lane, uint64_t now_ns)
{
    uint64_t used = atomic_exchange_explicit(&lane->used, 0, memory_order_relaxed);

    if (!LAUNCHES_OF(used))
        return;
    debit(lane->device, now_ns, (int64_t)NS_OF(used));
    append(lane, lane->granted_ns, NS_OF(used));
    lane->open_ns += NS_OF(used);
    lane->open_launches += LAUNCHES_OF(used);
}

/* Spans */

static struct hami_span *take_span(void)
{
    struct hami_span *span = free_spans;

    if (span)
        free_spans = span->next;
    else if (spans_made < SPANS_MAX)
        span = &spans[spans_made++];
    return span;
}

/* Takes over `from`, and holds `to`. */
static void add_span(struct hami_lane *lane, struct hami_span filled, uint64_t now_ns)
{
    struct hami_meter *meter = &hami_meters[lane->device];
    struct hami_span *span = take_span();

    if (!span) {
        hami_stamp_drop(filled.from);
        return;
    }
    *span = filled;
    hami_stamp_hold(span->to);
    if (!meter->queued_launches)
        meter->progress_ns = now_ns;
    meter->queued_ns += span->prepaid_ns;
    meter->queued_launches += span->launches;
    if (lane->first)
        lane->last->next = span;
    else
        lane->first = span;
    lane->last = span;
}

/* The open launches were not timed: what was estimated stands, and they are taken to have run just now. */
static void let_stand(struct hami_lane *lane, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t length = raw_ns(lane, lane->open_ns);

    if (lane->open_ns && shared)
        hami_timeline_mark(&shared->timelines[lane->device], now_ns > length ? now_ns - length : 0, now_ns);
    hami_meters[lane->device].own_ns += lane->open_ns;
    lane->open_ns = 0;
    lane->open_launches = 0;
    hami_stamp_drop(lane->tail);
    lane->tail = NULL;
}

/* Record where the open span ends, which becomes the new tail. */
static void close_open(struct hami_lane *lane, uint64_t now_ns)
{
    struct hami_stamp *end = lane->tail && lane->stamps ? hami_stamp_record(lane->stamps, lane->stream, now_ns) : NULL;

    if (!end) {
        let_stand(lane, now_ns);
        return;
    }
    add_span(lane, (struct hami_span){.from = lane->tail, .to = end, .prepaid_ns = lane->open_ns, .launches = lane->open_launches},
             now_ns);
    lane->tail = end;
    lane->open_ns = 0;
    lane->open_launches = 0;
}

void hami_meter_close_spans(int device, const struct hami_lane *current, uint64_t now_ns)
{
    hami_meters[device].paused_ns = now_ns;
    for (struct hami_lane *lane = lanes; lane < lanes + LANES_MAX; lane++) {
        if (!lane->id || lane->device != device)
            continue;
        hami_lane_settle(lane, now_ns);
        atomic_store_explicit(&lane->used, HAMI_LEASE_NS, memory_order_relaxed);
        if (!lane->open_launches)
            continue;
        if (hami_lane_is_dry(lane, now_ns) || (lane->is_default && lane != current))
            let_stand(lane, now_ns);
        else
            close_open(lane, now_ns);
    }
}

static void begin_timed(struct hami_lane *lane, struct hami_kernel *kernel, uint64_t estimate_ns, uint64_t now_ns,
                        struct hami_timed_launch *timed)
{
    if (lane->open_launches)
        close_open(lane, now_ns);
    timed->from = lane->tail ? lane->tail : lane->stamps ? hami_stamp_record(lane->stamps, lane->stream, now_ns) : NULL;
    lane->tail = NULL;
    if (!timed->from) {
        if (!estimate_ns)
            hami_kernel_learn(kernel, GUESS_NS);
        return;
    }
    timed->lane = lane;
    timed->lane_id = lane->id;
    timed->kernel = kernel;
    timed->prepaid_ns = estimate_ns;
    lane->untimed_ns = 0;
    if (!estimate_ns)
        atomic_store_explicit(&kernel->probed_at_ns, now_ns, memory_order_relaxed);
}

static bool is_pausing(int device, uint64_t now_ns)
{
    return hami_meters[device].paused_ns && now_ns - hami_meters[device].paused_ns < PAUSING_NS;
}

void hami_lane_launch(struct hami_lane *lane, struct hami_kernel *kernel, uint64_t now_ns, struct hami_timed_launch *timed)
{
    uint64_t estimate = hami_meter_estimate(&hami_meters[lane->device], kernel);

    if (hami_lane_is_dry(lane, now_ns) || !lane->tail)
        let_stand(lane, now_ns);
    timed->from = NULL;
    if (!estimate || lane->untimed_ns + estimate >= HAMI_SPAN_NS)
        begin_timed(lane, kernel, estimate, now_ns, timed);
    else if (!lane->tail && is_pausing(lane->device, now_ns) && lane->stamps)
        lane->tail = hami_stamp_record(lane->stamps, lane->stream, now_ns);
    debit(lane->device, now_ns, (int64_t)estimate);
    append(lane, now_ns, estimate);
    if (!timed->from) {
        lane->open_ns += estimate;
        lane->open_launches++;
    }
    lane->granted_ns = now_ns;
}

void hami_lane_end_timed(struct hami_timed_launch *timed, bool is_launched, uint64_t now_ns)
{
    struct hami_lane *lane = timed->lane;
    bool is_lane = lane->id == timed->lane_id;
    struct hami_stamp *to = is_lane && is_launched ? hami_stamp_record(lane->stamps, lane->stream, now_ns) : NULL;

    if (!to) {
        atomic_store_explicit(&timed->kernel->probed_at_ns, 0, memory_order_relaxed);
        hami_stamp_drop(timed->from);
        if (!is_launched && is_lane)
            debit(lane->device, now_ns, -(int64_t)timed->prepaid_ns);
        return;
    }
    add_span(lane,
             (struct hami_span){
                 .from = timed->from, .to = to, .kernel = timed->kernel, .prepaid_ns = timed->prepaid_ns, .launches = 1},
             now_ns);
    let_stand(lane, now_ns);
    lane->tail = to;
}

/* Collecting */

/* The factor is the container's: of overlapping spans whoever reports first pays, and the others' cost nothing. */
static void follow_factor(int device, uint64_t timed_ns, uint64_t cost_ns)
{
    struct hami_gpu_time_device *shared = &hami_gpu_time()->devices[device];
    uint64_t timed = atomic_fetch_add(&shared->timed_ns, timed_ns) + timed_ns;
    uint64_t cost = atomic_fetch_add(&shared->cost_ns, cost_ns) + cost_ns;
    uint64_t factor;

    if (timed > FACTOR_MEMORY_NS) {
        atomic_store(&shared->timed_ns, timed > 2 * FACTOR_MEMORY_NS ? FACTOR_MEMORY_NS : timed / 2);
        atomic_store(&shared->cost_ns, timed > 2 * FACTOR_MEMORY_NS ? FACTOR_MEMORY_NS * cost_ns / (timed_ns + 1) : cost / 2);
    }
    factor = (cost + FACTOR_PRIOR_NS) * HAMI_ONE / (timed + FACTOR_PRIOR_NS);
    factor = factor < FACTOR_MIN ? FACTOR_MIN : factor > 2 * HAMI_ONE ? 2 * HAMI_ONE : factor;
    atomic_store_explicit(&hami_meters[device].factor, factor, memory_order_relaxed);
}

static void end_span(struct hami_lane *lane, struct hami_span *span, uint64_t from_ns, uint64_t to_ns, uint64_t now_ns)
{
    struct hami_meter *meter = &hami_meters[lane->device];

    if (span->kernel)
        hami_kernel_learn(span->kernel, to_ns - from_ns);
    follow_factor(lane->device, to_ns - from_ns, span->cost_ns);
    debit(lane->device, now_ns, -(int64_t)span->prepaid_ns);
    meter->progress_ns = now_ns;
    if (span->to == lane->tail)
        lane->idle_ns = to_ns + raw_ns(lane, lane->open_ns);
    lane->first = span->next;
    free_span(meter, span);
}

static void charge_span(struct hami_lane *lane, struct hami_span *span, uint64_t from_ns, uint64_t to_ns, uint64_t now_ns)
{
    uint64_t prepaid = span->prepaid_ns, begin = span->marked_ns ? span->marked_ns : from_ns;

    span->cost_ns += charge(lane->device, begin, to_ns, &span->prepaid_ns, now_ns);
    hami_meters[lane->device].queued_ns -= prepaid - span->prepaid_ns;
    span->marked_ns = to_ns > begin ? to_ns : begin;
}

/* Returns false when the device has not reached the span's end. */
static bool collect_span(struct hami_lane *lane, struct hami_span *span, uint64_t now_ns)
{
    uint64_t from = 0, to = 0;
    enum hami_stamp_state begun = hami_stamp_ask(span->from, &from);
    enum hami_stamp_state ended = begun == HAMI_STAMP_REACHED ? hami_stamp_ask(span->to, &to) : begun;

    if (ended == HAMI_STAMP_REACHED) {
        to = to > from ? to : from;
        charge_span(lane, span, from, to, now_ns);
        end_span(lane, span, from, to, now_ns);
        return true;
    }
    if (ended == HAMI_STAMP_LOST) {
        lane->first = span->next;
        free_span(&hami_meters[lane->device], span);
        return true;
    }
    if (begun == HAMI_STAMP_REACHED && now_ns > from && now_ns - from < HAMI_PATIENCE_NS)
        charge_span(lane, span, from, now_ns, now_ns);
    return false;
}

bool hami_meter_collect(int device, uint64_t now_ns)
{
    bool is_ahead = false;
    CUcontext popped;

    for (struct hami_lane *lane = lanes; lane < lanes + LANES_MAX; lane++) {
        if (!lane->first || lane->device != device)
            continue;
        if (HAMI_INSIDE(hami_real.cuCtxPushCurrent_v2(hami_stamps_context(lane->stamps))) != CUDA_SUCCESS)
            continue;
        while (lane->first && collect_span(lane, lane->first, now_ns))
            continue;
        HAMI_INSIDE(hami_real.cuCtxPopCurrent_v2(&popped));
        is_ahead |= lane->first != NULL;
    }
    return is_ahead;
}

void hami_meter_end_stream(uint64_t id)
{
    struct hami_lane *lane = hami_lane_find(id);

    if (lane)
        empty_lane(lane);
}

void hami_meter_end_context(CUcontext context)
{
    struct hami_stamps *stamps = NULL;

    for (struct hami_lane *lane = lanes; lane < lanes + LANES_MAX; lane++) {
        if (!lane->id || !lane->stamps || hami_stamps_context(lane->stamps) != context)
            continue;
        stamps = lane->stamps;
        empty_lane(lane);
    }
    if (stamps)
        hami_stamps_close(stamps);
}
