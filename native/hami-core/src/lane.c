#include "lane.h"

#include <string.h>

#include "hooks.h"

/* What the estimates may be early by: the time between two launches of a program that does nothing else. */
#define DRY_TOLERANCE_NS 10000u

/* Launches are taken to have to wait until none had to for so long. */
#define PAUSING_NS 100000000u

/* What a launch is taken to cost that could not be timed. */
#define GUESS_NS 1000000u

/* What a launch pays in advance whose cost is not known: some of them empty the bucket, also for the container's other processes. */
#define ADVANCE_NS 10000000u

#define NS_OF(used) ((used) & 0xffffffffffu)
#define LAUNCHES_OF(used) ((unsigned)((used) >> 40))

struct hami_lane hami_lanes[HAMI_LANES_MAX];

static bool is_used;

/* A child of a process that launched nothing has nothing to forget, and touches no memory for it. */
void hami_lanes_forget(void)
{
    if (is_used) {
        memset(hami_lanes, 0, sizeof(hami_lanes));
        hami_spans_forget();
        hami_stamps_forget();
        hami_meter_forget();
    }
    is_used = false;
}

static void empty(struct hami_lane *lane)
{
    hami_spans_drop(&lane->spans, lane->device);
    hami_stamp_drop(lane->tail);
    lane->tail = NULL;
    atomic_store(&lane->id, 0);
}

struct hami_lane *hami_lane_make(uint64_t id, int device, CUstream stream, CUcontext context)
{
    struct hami_lane *lane = hami_lane_find(id);

    if (lane)
        return lane;
    lane = hami_lane_place(id, 0);
    for (unsigned step = HAMI_LANE_REACH; step-- > 0;)
        if (!hami_lane_place(id, step)->id)
            lane = hami_lane_place(id, step);
    is_used = true;
    empty(lane);
    memset(lane, 0, sizeof(*lane));
    lane->device = device;
    lane->is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
    lane->stream = stream;
    lane->stamps = hami_stamps_of(context);
    atomic_store_explicit(&lane->used, HAMI_LEASE_NS, memory_order_relaxed);
    atomic_store_explicit(&lane->id, id, memory_order_release);
    return lane;
}

static struct hami_stamp *record(struct hami_lane *lane, uint64_t now_ns)
{
    return lane->stamps ? hami_stamp_record(lane->stamps, lane->stream, now_ns) : NULL;
}

static bool is_dry(const struct hami_lane *lane, uint64_t now_ns)
{
    return now_ns > lane->idle_ns + DRY_TOLERANCE_NS;
}

static void extend(struct hami_lane *lane, uint64_t from_ns, uint64_t estimate_ns)
{
    lane->idle_ns = (lane->idle_ns > from_ns ? lane->idle_ns : from_ns) +
                    hami_meter_occupied_ns(&hami_meters[lane->device], estimate_ns);
    lane->untimed_ns += estimate_ns;
}

void hami_lane_settle(struct hami_lane *lane, uint64_t now_ns)
{
    uint64_t used = atomic_exchange_explicit(&lane->used, 0, memory_order_relaxed);

    if (!LAUNCHES_OF(used))
        return;
    hami_meter_prepay(lane->device, now_ns, NS_OF(used));
    extend(lane, lane->granted_ns, NS_OF(used));
    lane->open_ns += NS_OF(used);
    lane->open_launches += LAUNCHES_OF(used);
}

/* Give up timing the open launches. */
static void let_stand(struct hami_lane *lane, uint64_t now_ns)
{
    hami_meter_let_stand(lane->device, lane->open_ns, now_ns);
    lane->open_ns = 0;
    lane->open_launches = 0;
    hami_stamp_drop(lane->tail);
    lane->tail = NULL;
}

/* Record where the open launches end, which becomes the new tail. */
static void close_open(struct hami_lane *lane, uint64_t now_ns)
{
    struct hami_stamp *end = lane->tail ? record(lane, now_ns) : NULL;
    struct hami_span span = {
        .from = lane->tail, .to = end, .prepaid_ns = lane->open_ns, .launches = lane->open_launches};

    if (!end) {
        let_stand(lane, now_ns);
        return;
    }
    hami_span_add(&lane->spans, lane->device, &span, now_ns);
    lane->tail = end;
    lane->open_ns = 0;
    lane->open_launches = 0;
}

void hami_lanes_pause(int device, const struct hami_lane *current, uint64_t now_ns)
{
    hami_meters[device].paused_ns = now_ns;
    for (struct hami_lane *lane = hami_lanes; lane < hami_lanes + HAMI_LANES_MAX; lane++) {
        if (!lane->id || lane->device != device)
            continue;
        hami_lane_settle(lane, now_ns);
        atomic_store_explicit(&lane->used, HAMI_LEASE_NS, memory_order_relaxed);
        if (lane->open_launches && !is_dry(lane, now_ns) && (!lane->is_default || lane == current))
            close_open(lane, now_ns);
        /* The stream may run dry in the pause, so nothing is timed from its tail. */
        let_stand(lane, now_ns);
    }
}

static void begin_timed(struct hami_lane *lane, struct hami_kernel *kernel, bool is_known, uint64_t prepaid_ns, uint64_t now_ns,
                        struct hami_timed_launch *timed)
{
    if (lane->open_launches)
        close_open(lane, now_ns);
    timed->from = lane->tail ? lane->tail : record(lane, now_ns);
    lane->tail = NULL;
    if (!timed->from) {
        if (!is_known)
            hami_kernel_learn(kernel, &(struct hami_sample){GUESS_NS, GUESS_NS, GUESS_NS});
        return;
    }
    timed->lane = lane;
    timed->lane_id = lane->id;
    timed->kernel = kernel;
    timed->prepaid_ns = prepaid_ns;
    lane->untimed_ns = 0;
    if (!is_known)
        atomic_store_explicit(&kernel->probed_at_ns, now_ns, memory_order_relaxed);
}

static bool is_pausing(int device, uint64_t now_ns)
{
    return hami_meters[device].paused_ns && now_ns - hami_meters[device].paused_ns < PAUSING_NS;
}

void hami_lane_launch(struct hami_lane *lane, struct hami_kernel *kernel, uint64_t now_ns, struct hami_timed_launch *timed)
{
    uint64_t known = hami_meter_estimate(&hami_meters[lane->device], kernel);
    uint64_t estimate = known ? known : ADVANCE_NS;

    if (is_dry(lane, now_ns) || !lane->tail)
        let_stand(lane, now_ns);
    timed->from = NULL;
    if (!known || lane->untimed_ns + estimate >= HAMI_SPAN_NS)
        begin_timed(lane, kernel, known != 0, estimate, now_ns, timed);
    else if (!lane->tail && is_pausing(lane->device, now_ns))
        lane->tail = record(lane, now_ns);
    hami_meter_prepay(lane->device, now_ns, estimate);
    extend(lane, now_ns, estimate);
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
    struct hami_stamp *to = is_lane && is_launched ? record(lane, now_ns) : NULL;
    struct hami_span span = {
        .from = timed->from, .to = to, .kernel = timed->kernel, .prepaid_ns = timed->prepaid_ns, .launches = 1};

    if (!to) {
        atomic_store_explicit(&timed->kernel->probed_at_ns, 0, memory_order_relaxed);
        hami_stamp_drop(timed->from);
        if (!is_launched && is_lane)
            hami_meter_debit(lane->device, now_ns, -(int64_t)timed->prepaid_ns);
        return;
    }
    hami_span_add(&lane->spans, lane->device, &span, now_ns);
    let_stand(lane, now_ns);
    lane->tail = to;
}

bool hami_lanes_collect(int device, uint64_t now_ns)
{
    bool is_ahead = false;
    CUcontext popped;

    for (struct hami_lane *lane = hami_lanes; lane < hami_lanes + HAMI_LANES_MAX; lane++) {
        uint64_t idle = 0;

        if (!lane->spans.first || (device != HAMI_ALL_DEVICES && lane->device != device))
            continue;
        if (HAMI_INSIDE(hami_real.cuCtxPushCurrent_v2(hami_stamps_context(lane->stamps))) != CUDA_SUCCESS)
            continue;
        hami_spans_collect(&lane->spans, lane->device, now_ns, lane->tail, &idle);
        HAMI_INSIDE(hami_real.cuCtxPopCurrent_v2(&popped));
        if (idle)
            lane->idle_ns = idle + hami_meter_occupied_ns(&hami_meters[lane->device], lane->open_ns);
        is_ahead |= lane->spans.first != NULL;
    }
    return is_ahead;
}

void hami_lane_end(uint64_t id)
{
    struct hami_lane *lane = hami_lane_find(id);

    if (lane)
        empty(lane);
}

void hami_lanes_end_context(CUcontext context)
{
    struct hami_stamps *stamps = NULL;

    for (struct hami_lane *lane = hami_lanes; lane < hami_lanes + HAMI_LANES_MAX; lane++) {
        if (!lane->id || !lane->stamps || hami_stamps_context(lane->stamps) != context)
            continue;
        stamps = lane->stamps;
        empty(lane);
    }
    if (stamps)
        hami_stamps_close(stamps);
}
