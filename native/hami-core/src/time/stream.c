#include "stream.h"

#include <pthread.h>
#include <string.h>

#include "hooks.h"
#include "lock_rank.h"
#include "probes.h"
#include "trace.h"

/* How early the estimates may be: the time between two launches of a program that does nothing else. */
#define IDLE_TOLERANCE_NS 10000u

/* Launches are expected to wait until none had to for this long. */
#define PAUSING_NS 100000000u

#define NS_OF(used) ((used) & 0xffffffffffu)
#define LAUNCHES_OF(used) ((unsigned)((used) >> 40))

struct hami_stream hami_streams[HAMI_STREAMS_MAX];

/* The id of an entry that is being made. No stream has it. */
#define TAKEN UINT64_MAX

/* For who has which entry: its `id`, unless it becomes 0, and its `device`. No driver is called under it. */
static pthread_mutex_t table_mutex = PTHREAD_MUTEX_INITIALIZER;

static _Atomic uint32_t used_devices;

_Static_assert(HAMI_DEVICES_MAX <= 32, "used_devices has a bit for each device");

/* A child of a process that launched nothing has nothing to forget. */
void hami_streams_forget(void)
{
    pthread_mutex_init(&table_mutex, NULL);
    if (used_devices) {
        memset(hami_streams, 0, sizeof(hami_streams));
        hami_intervals_forget();
        hami_event_pools_forget();
        hami_meter_forget();
    }
    used_devices = 0;
}

bool hami_streams_are_on(int device)
{
    return atomic_load_explicit(&used_devices, memory_order_relaxed) >> device & 1;
}

/* Whether an entry is in use for a device whose lock the caller holds. */
static bool is_on(const struct hami_stream *stream, int device)
{
    return stream->id && stream->device == device;
}

static void release(struct hami_stream *stream)
{
    hami_intervals_drop(&stream->intervals, stream->device);
    hami_event_drop(stream->tail);
    stream->tail = NULL;
    atomic_store(&stream->id, 0);
}

/* Release an entry if nobody uses its device now. */
static bool try_release(struct hami_stream *stream)
{
    int device = stream->device;

    if (!hami_meter_try_lock(device))
        return false;
    release(stream);
    hami_meter_unlock(device);
    return true;
}

/* Return a free entry for an id, or one that is replaced: of the same device if there is one. The caller holds `table_mutex`. */
static struct hami_stream *free_entry(uint64_t id, int device)
{
    for (unsigned step = 0; step < HAMI_STREAM_PROBES; step++)
        if (!hami_stream_at(id, step)->id)
            return hami_stream_at(id, step);
    for (unsigned step = 0; step < HAMI_STREAM_PROBES; step++) {
        if (hami_stream_at(id, step)->device != device)
            continue;
        release(hami_stream_at(id, step));
        return hami_stream_at(id, step);
    }
    for (unsigned step = 0; step < HAMI_STREAM_PROBES; step++)
        if (hami_stream_at(id, step)->id != TAKEN && try_release(hami_stream_at(id, step)))
            return hami_stream_at(id, step);
    return NULL;
}

static struct hami_stream *take_entry(uint64_t id, int device)
{
    struct hami_stream *stream;

    hami_lock(&table_mutex, HAMI_RANK_STREAMS);
    stream = free_entry(id, device);
    if (stream) {
        stream->device = device;
        atomic_store(&stream->id, TAKEN);
    }
    hami_unlock(&table_mutex, HAMI_RANK_STREAMS);
    return stream;
}

struct hami_stream *hami_stream_make(uint64_t id, int device, CUstream handle, CUcontext context)
{
    struct hami_stream *stream = hami_stream_find(id);

    if (stream && stream->device != device)
        return NULL;
    if (stream && !atomic_exchange(&stream->is_ended, false))
        return stream;
    if (stream)
        release(stream);
    stream = take_entry(id, device);
    if (!stream)
        return NULL;
    atomic_fetch_or(&used_devices, (uint32_t)1 << device);
    stream->is_default = handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    stream->handle = handle;
    stream->pool = hami_event_pool_of(context, device);
    stream->intervals = (struct hami_intervals){.first = NULL};
    atomic_store(&stream->missed_waits, 0);
    atomic_store(&stream->is_ended, false);
    stream->open_ns = stream->untimed_ns = stream->granted_ns = stream->idle_ns = 0;
    stream->open_launches = 0;
    atomic_store_explicit(&stream->used, HAMI_LEASE_NS, memory_order_relaxed);
    atomic_store_explicit(&stream->id, id, memory_order_release);
    return stream;
}

static struct hami_event *record(struct hami_stream *stream, uint64_t now_ns)
{
    return stream->pool ? hami_event_record(stream->pool, stream->handle, now_ns) : NULL;
}

static bool is_idle(const struct hami_stream *stream, uint64_t now_ns)
{
    return now_ns > stream->idle_ns + IDLE_TOLERANCE_NS;
}

static void extend(struct hami_stream *stream, uint64_t from_ns, uint64_t estimate_ns)
{
    stream->idle_ns =
        (stream->idle_ns > from_ns ? stream->idle_ns : from_ns) + hami_meter_occupied_ns(&hami_meters[stream->device], estimate_ns);
    stream->untimed_ns += estimate_ns;
}

/* Give up timing the open launches, and keep their estimates. */
static void keep_estimates(struct hami_stream *stream, uint64_t now_ns)
{
    hami_meter_keep_estimate(stream->device, stream->open_ns, now_ns);
    stream->open_ns = 0;
    stream->open_launches = 0;
    hami_event_drop(stream->tail);
    stream->tail = NULL;
}

void hami_stream_charge_lease(struct hami_stream *stream, const struct hami_device_now *now)
{
    uint64_t used = atomic_exchange_explicit(&stream->used, hami_trace_is_on() ? HAMI_LEASE_NS : 0, memory_order_relaxed);

    if (LAUNCHES_OF(used)) {
        hami_meter_prepay(now, NS_OF(used));
        extend(stream, stream->granted_ns, NS_OF(used));
        stream->open_ns += NS_OF(used);
        stream->open_launches += LAUNCHES_OF(used);
    }
    if (__builtin_expect(atomic_load_explicit(&stream->missed_waits, memory_order_relaxed), 0) &&
        atomic_exchange(&stream->missed_waits, 0)) {
        keep_estimates(stream, now->ns);
        hami_intervals_note_wait(&stream->intervals, stream->device);
    }
}

/* Record the end of the open launches; it becomes the new tail. */
static void end_open_interval(struct hami_stream *stream, const struct hami_device_now *now)
{
    struct hami_event *end = stream->tail ? record(stream, now->ns) : NULL;
    struct hami_interval interval = {
        .from = stream->tail, .to = end, .prepaid_ns = stream->open_ns, .launches = stream->open_launches};

    if (!end) {
        keep_estimates(stream, now->ns);
        return;
    }
    hami_interval_add(&stream->intervals, now, &interval);
    stream->tail = end;
    stream->open_ns = 0;
    stream->open_launches = 0;
}

/*
 * Whether an event may be recorded before a launch on `current`. Not on a stream that is held back, because its queue may be full:
 * then the driver would wait for what may wait for this launch.
 */
static bool may_record_on(const struct hami_stream *stream, const struct hami_stream *current)
{
    return stream == current || (!stream->is_default && !stream->intervals.is_uncounted);
}

void hami_streams_pause(const struct hami_device_now *now, const struct hami_stream *current)
{
    hami_meters[now->device].paused_ns = now->ns;
    for (struct hami_stream *stream = hami_streams; stream < hami_streams + HAMI_STREAMS_MAX; stream++) {
        if (!is_on(stream, now->device))
            continue;
        hami_stream_charge_lease(stream, now);
        atomic_store_explicit(&stream->used, HAMI_LEASE_NS, memory_order_relaxed);
        if (stream->open_launches && !is_idle(stream, now->ns) && may_record_on(stream, current))
            end_open_interval(stream, now);
        /* The stream may become idle in the pause, so nothing is timed from its tail. */
        keep_estimates(stream, now->ns);
    }
}

static void begin_timed(struct hami_stream *stream, struct hami_kernel *kernel, bool is_known, uint64_t prepaid_ns,
                        const struct hami_device_now *now, struct hami_timed_launch *timed)
{
    if (stream->open_launches)
        end_open_interval(stream, now);
    timed->from = stream->tail ? stream->tail : record(stream, now->ns);
    stream->tail = NULL;
    if (!timed->from) {
        hami_meter_guess(kernel);
        return;
    }
    timed->stream = stream;
    timed->device = stream->device;
    timed->stream_id = stream->id;
    timed->kernel = kernel;
    timed->kernel_key = atomic_load_explicit(&kernel->key, memory_order_relaxed);
    timed->prepaid_ns = prepaid_ns;
    timed->advance_ns = is_known ? 0 : hami_probes_begin(now);
    stream->untimed_ns = 0;
}

static bool is_pausing(int device, uint64_t now_ns)
{
    return hami_meters[device].paused_ns && now_ns - hami_meters[device].paused_ns < PAUSING_NS;
}

uint64_t hami_stream_launch(struct hami_stream *stream, struct hami_kernel *kernel, const struct hami_device_now *now,
                            struct hami_timed_launch *timed)
{
    uint64_t known, estimate;

    if (hami_intervals_may_wait(&stream->intervals))
        hami_meter_guess(kernel);
    known = hami_meter_estimate(&hami_meters[stream->device], kernel);
    estimate = known ? known : hami_probes_estimate(&hami_meters[stream->device]);
    if (is_idle(stream, now->ns) || !stream->tail)
        keep_estimates(stream, now->ns);
    timed->from = NULL;
    if (!known || stream->untimed_ns + estimate >= HAMI_INTERVAL_NS)
        begin_timed(stream, kernel, known != 0, estimate, now, timed);
    else if (!stream->tail && is_pausing(stream->device, now->ns))
        stream->tail = record(stream, now->ns);
    hami_meter_prepay(now, estimate);
    extend(stream, now->ns, estimate);
    if (!timed->from) {
        stream->open_ns += estimate;
        stream->open_launches++;
    }
    stream->granted_ns = now->ns;
    return estimate;
}

void hami_stream_note_wait(struct hami_stream *stream, const struct hami_device_now *now)
{
    atomic_fetch_add(&stream->missed_waits, 1);
    hami_stream_charge_lease(stream, now);
}

void hami_stream_miss_wait(uint64_t id)
{
    struct hami_stream *stream = hami_stream_find(id);

    if (stream)
        atomic_fetch_add(&stream->missed_waits, 1);
}

void hami_stream_miss_end(uint64_t id)
{
    struct hami_stream *stream = hami_stream_find(id);

    if (stream)
        atomic_store(&stream->is_ended, true);
}

bool hami_streams_run_probe(const struct hami_kernel *kernel, const struct hami_stream *current)
{
    uint64_t key = atomic_load_explicit(&kernel->key, memory_order_relaxed);

    for (const struct hami_stream *stream = hami_streams; stream < hami_streams + HAMI_STREAMS_MAX; stream++)
        if (is_on(stream, current->device) && (hami_intervals_run_probe(&stream->intervals, key) ||
                                               (stream == current && hami_intervals_have_probe(&stream->intervals, key))))
            return true;
    return false;
}

void hami_stream_end_timed(struct hami_timed_launch *timed, bool is_launched, const struct hami_device_now *now)
{
    struct hami_stream *stream = timed->stream;
    bool is_same = stream->id == timed->stream_id;
    struct hami_event *to = is_same && is_launched ? record(stream, now->ns) : NULL;
    struct hami_interval interval = {.from = timed->from,
                                     .to = to,
                                     .kernel = timed->kernel,
                                     .kernel_key = timed->kernel_key,
                                     .advance_ns = timed->advance_ns,
                                     .not_before_ns = timed->launched_ns - HAMI_SLOW_CALL_NS,
                                     .prepaid_ns = timed->prepaid_ns,
                                     .launches = 1};

    if (!to) {
        hami_probes_end(now, timed->advance_ns);
        if (is_launched)
            hami_meter_guess(timed->kernel);
        hami_event_drop(timed->from);
        if (!is_launched && is_same)
            hami_meter_debit(now, -(int64_t)timed->prepaid_ns);
        return;
    }
    hami_interval_add(&stream->intervals, now, &interval);
    keep_estimates(stream, now->ns);
    stream->tail = to;
}

void hami_stream_abandon_timed(const struct hami_timed_launch *timed, bool is_launched, const struct hami_device_now *now)
{
    hami_event_return(timed->from);
    if (is_launched) {
        hami_meter_keep_estimate(timed->device, timed->prepaid_ns, now->ns);
        return;
    }
    hami_probes_end(now, timed->advance_ns);
    hami_meter_debit(now, -(int64_t)timed->prepaid_ns);
}

/* Release a stream that ended, or whose context did, while another thread had the lock. Returns whether it was one. */
static bool release_if_ended(struct hami_stream *stream)
{
    if (__builtin_expect(!atomic_load(&stream->is_ended) && !(stream->pool && hami_event_pool_is_lost(stream->pool)), 1))
        return false;
    release(stream);
    return true;
}

static void collect(struct hami_stream *stream, const struct hami_device_now *now)
{
    CUcontext popped;
    uint64_t idle = 0;

    if (HAMI_INSIDE(hami_real.cuCtxPushCurrent_v2(hami_event_pool_context(stream->pool))) != CUDA_SUCCESS) {
        hami_intervals_drop(&stream->intervals, now->device);
        return;
    }
    hami_intervals_collect(&stream->intervals, now, stream->tail, &idle);
    HAMI_INSIDE(hami_real.cuCtxPopCurrent_v2(&popped));
    if (idle)
        stream->idle_ns = idle + hami_meter_occupied_ns(&hami_meters[now->device], stream->open_ns);
}

/* Streams with launches that others do not wait for come last, so that the time of the others is marked first. */
bool hami_streams_collect(const struct hami_device_now *now)
{
    bool is_ahead = false, has_aside = false;

    for (struct hami_stream *stream = hami_streams; stream < hami_streams + HAMI_STREAMS_MAX; stream++) {
        if (!is_on(stream, now->device) || release_if_ended(stream) || !stream->intervals.first)
            continue;
        if (stream->intervals.first->is_aside)
            has_aside = true;
        else
            collect(stream, now);
        is_ahead |= stream->intervals.first != NULL;
    }
    for (struct hami_stream *stream = hami_streams; has_aside && stream < hami_streams + HAMI_STREAMS_MAX; stream++)
        if (is_on(stream, now->device) && stream->intervals.first && stream->intervals.first->is_aside)
            collect(stream, now);
    hami_event_pools_close_lost(now->device);
    return is_ahead;
}

void hami_stream_end(uint64_t id, int device)
{
    struct hami_stream *stream = hami_stream_find(id);

    if (stream && is_on(stream, device))
        release(stream);
}

void hami_streams_end_context(CUcontext context, int device)
{
    struct hami_event_pool *pool = NULL;

    for (struct hami_stream *stream = hami_streams; stream < hami_streams + HAMI_STREAMS_MAX; stream++) {
        if (!is_on(stream, device) || !stream->pool || hami_event_pool_context(stream->pool) != context)
            continue;
        pool = stream->pool;
        release(stream);
    }
    if (pool)
        hami_event_pool_close(pool);
}
