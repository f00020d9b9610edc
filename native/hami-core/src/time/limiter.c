#include "limiter.h"

#include <stdatomic.h>
#include <time.h>

#include "bucket.h"
#include "clock.h"
#include "devices.h"
#include "driver.h"
#include "hooks.h"
#include "options.h"
#include "priority.h"
#include "probes.h"
#include "region.h"
#include "region_limits.h"
#include "region_map.h"
#include "trace.h"
#include "waits.h"
#include "watcher.h"

/*
 * How long a waiting launch sleeps: until the bucket holds enough to fill a time slice of the device, because an interrupted slice
 * costs both containers. At most SLEEP_MAX_NS, so that a changed limit soon has effect.
 */
#define SLICE_NS 1800000u
#define SLEEP_LEAST_MAX_NS 20000000u
#define SLEEP_MAX_NS 50000000u

/* A process may be late for its turn by this long before another takes the turn. */
#define LATE_NS 5000000u

/*
 * With this much unused time all processes of the container may launch at once. It is more than is lost when a turn changes hands.
 */
#define ENOUGH_FOR_ALL_NS (HAMI_BUCKET_KEPT_NS / 2)

/* How often a launch looks again that waits for the device and not for the bucket. */
#define DEVICE_SLEEP_NS 1000000u

/*
 * What may be queued on a limited device: enough to keep it busy while launches sleep, and so little that wrong estimates do not
 * matter and the driver's queue of 1024 launches a stream never fills.
 */
#define QUEUED_MAX_NS 30000000u
#define QUEUED_MAX_LAUNCHES 512u

/* When launches are limited: derived from the options and the region's limits, once a second. */
enum limit_mode { MODE_NEVER, MODE_WHILE_SWITCHED_ON, MODE_ALWAYS };

/*
 * The ids of the thread's default streams, the legacy stream and its own, in the context that was current when it last asked. Only
 * set in a process with one device: then the right device is charged, and at most one lease counts for the wrong context.
 */
static _Thread_local uint64_t default_ids[2] __attribute__((tls_model("initial-exec")));

static _Atomic int limit_mode;
static _Atomic uint64_t looked_second, noted_second;

static bool is_limiting(const struct hami_region *region)
{
    int now = atomic_load_explicit(&limit_mode, memory_order_relaxed);

    return now == MODE_ALWAYS ||
           (now == MODE_WHILE_SWITCHED_ON && atomic_load_explicit(&region->utilization_switch, memory_order_relaxed) != 0);
}

/* Return the percentage of a region device's time that launches are held to now; 0 if they are not limited. */
static unsigned percent_of(int device)
{
    const struct hami_region *region = hami_region();

    return is_limiting(region) ? hami_region_core_percent(device) : 0;
}

static void read_limits(struct hami_limits *limits)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        limits->percent[device] = percent_of(device);
}

static void look_for_limits(void)
{
    bool has_limit = false;
    int policy = hami_options()->utilization_policy;

    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        has_limit |= hami_region_core_percent(device) != 0;
    atomic_store_explicit(&limit_mode,
                          !has_limit || policy == HAMI_POLICY_DISABLE ? MODE_NEVER
                          : policy == HAMI_POLICY_FORCE               ? MODE_ALWAYS
                                                                      : MODE_WHILE_SWITCHED_ON,
                          memory_order_relaxed);
}

/* Do what is due once a second: look up the limits, and note the time of the launch. */
static void new_second(struct hami_region *region, uint64_t second)
{
    atomic_store_explicit(&looked_second, second, memory_order_relaxed);
    hami_region_follow_limits();
    look_for_limits();
    if (second < atomic_load(&noted_second) + (uint64_t)hami_options()->kernel_interval_seconds)
        return;
    atomic_store(&noted_second, second);
    hami_priority_note_time(region, second);
}

/* Return the explicit handle of a stream. */
static CUstream handle_of(CUstream stream, bool is_per_thread)
{
    if (stream)
        return stream;
    return is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/*
 * Return the id of a stream: its handle, or for a default stream a number made of the context, and of the thread if it is the
 * thread's own.
 */
static uint64_t stream_id(CUstream stream, CUcontext context)
{
    if (stream == CU_STREAM_LEGACY)
        return (uint64_t)(uintptr_t)context + 1;
    if (stream == CU_STREAM_PER_THREAD)
        return ((uint64_t)(uintptr_t)context ^ (uint64_t)(uintptr_t)&hami_inside << 16) + 2;
    return (uint64_t)(uintptr_t)stream;
}

static uint64_t id_of(CUstream stream)
{
    uint64_t id;

    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        return stream_id(stream, NULL);
    id = stream_id(stream, hami_current_context());
    if (hami_ordinal_count() == 1)
        default_ids[stream == CU_STREAM_PER_THREAD] = id;
    return id;
}

/* Return the same id, mostly without asking the driver. Good enough for a lease. */
static uint64_t probable_id_of(CUstream stream)
{
    uint64_t known = stream == CU_STREAM_LEGACY ? default_ids[0] : stream == CU_STREAM_PER_THREAD ? default_ids[1] : 0;

    return known ? known : id_of(stream);
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* How long a launch must wait before it looks again, and why; 0 ns if it may start. */
struct delay {
    uint64_t ns;
    enum hami_wait_reason reason;
};

/* Return how long a launch waits for the container's share of the device's time. */
static struct delay wait_for_share(const struct hami_device_now *now)
{
    const _Atomic uint64_t *paid_at = hami_meter_bucket(now->device, now->ns);
    uint64_t wait = paid_at ? hami_bucket_wait_ns(paid_at, now->ns) : 0;

    if (!paid_at ||
        (!wait && (hami_bucket_kept_ns(paid_at, now->ns) > ENOUGH_FOR_ALL_NS || !hami_meter_must_yield(now->device, now->ns))))
        return (struct delay){.ns = 0};
    wait = clamp(wait, clamp(SLICE_NS * 100ull / now->percent, 0, SLEEP_LEAST_MAX_NS), SLEEP_MAX_NS);
    hami_meter_wait(now->device, now->ns + wait + LATE_NS);
    return (struct delay){wait, HAMI_WAIT_SHARE};
}

/*
 * Whether a launch waits for an earlier one of its kind, which will tell the cost. Several of a kind may be long kernels, all on the
 * device before the first has ended, and other processes would wait for them.
 */
static bool awaits_own_kind(const struct hami_stream *stream, const struct hami_device_now *now, const struct hami_kernel *kernel)
{
    const struct hami_meter *meter = &hami_meters[now->device];

    return !hami_probes_are_short(meter) && now->ns - meter->probes.began_ns < HAMI_PATIENCE_NS &&
           hami_streams_run_probe(kernel, stream);
}

/* Return how long a launch waits until the cost of others is known. */
static struct delay wait_for_cost(const struct hami_stream *stream, const struct hami_device_now *now,
                                  const struct hami_kernel *kernel)
{
    uint64_t wait;

    if (!hami_stream_would_probe(stream, kernel) || !(hami_probes_are_enough(now) || awaits_own_kind(stream, now, kernel)))
        return (struct delay){.ns = 0};
    wait = hami_probes_sleep_ns(now);
    hami_meter_wait(now->device, now->ns + wait + LATE_NS);
    return (struct delay){wait, HAMI_WAIT_COST};
}

static struct delay delay_of(const struct hami_stream *stream, const struct hami_device_now *now, const struct hami_kernel *kernel)
{
    const struct hami_meter *meter = &hami_meters[now->device];
    struct delay wait;

    if (!hami_meter_bucket(now->device, now->ns))
        return (struct delay){.ns = 0};
    wait = wait_for_cost(stream, now, kernel);
    if (wait.ns)
        return wait;
    if (meter->queued_ns >= QUEUED_MAX_NS || meter->queued_launches >= QUEUED_MAX_LAUNCHES)
        return (struct delay){DEVICE_SLEEP_NS, HAMI_WAIT_QUEUE};
    return wait_for_share(now);
}

/* Return the stream with an id, made if necessary; NULL if that is impossible. The caller holds the device's lock. */
static struct hami_stream *stream_with(uint64_t id, int device, CUstream handle)
{
    struct hami_stream *stream = hami_stream_find(id);

    return stream && stream->device == device ? stream : hami_stream_make(id, device, handle, hami_current_context());
}

/* Return the device of a stream; -1 if it is unknown. */
static int device_of(uint64_t id, CUstream handle)
{
    const struct hami_stream *stream = hami_stream_find(id);

    return stream ? stream->device : hami_device_of_stream(handle, false);
}

/* Note how much a launch pays. An unknown kind pays an advance. */
static void note_paid(struct hami_trace_entry *entry, const struct hami_kernel *kernel, bool is_known, uint64_t paid_ns)
{
    entry->kind = atomic_load_explicit(&kernel->key, memory_order_relaxed);
    entry->type = is_known ? HAMI_TRACE_ESTIMATE : HAMI_TRACE_ADVANCE;
    entry->paid_ns = paid_ns;
}

/*
 * Try to start a launch on a stream; the caller holds the device's lock. Returns the wait before the next attempt. `entry` is
 * filled in when it starts.
 */
static struct delay attempt(const struct hami_launch *launch, struct hami_stream *stream, struct hami_timed_launch *timed,
                            struct hami_trace_entry *entry)
{
    struct delay wait = {.ns = 0};
    struct hami_device_now now;
    struct hami_kernel *kernel;

    if (!stream)
        return wait;
    now = hami_stream_now(stream, percent_of(stream->device), hami_now_ns());
    if (!now.percent)
        return wait;
    kernel = hami_kernel_find(&hami_kernels, hami_kernel_key(launch->handle, stream->device, launch->blocks, launch->threads));
    hami_stream_charge_lease(stream, &now);
    wait = delay_of(stream, &now, kernel);
    if (wait.ns) {
        hami_streams_pause(&now, stream);
        hami_streams_collect(&now);
        now.ns = hami_now_ns();
        wait = delay_of(stream, &now, kernel);
    }
    if (!wait.ns) {
        hami_meter_pass(stream->device, now.ns + LATE_NS);
        bool is_known = hami_meter_estimate(&hami_meters[stream->device], kernel) != 0;

        note_paid(entry, kernel, is_known, hami_stream_launch(stream, kernel, &now, timed));
    }
    return wait;
}

/*
 * Try to start a launch while another thread has the device's lock for long: nothing is timed, and what is queued is unknown. So it
 * pays its estimate, and waits only for the container's share.
 */
static struct delay attempt_untimed(const struct hami_launch *launch, int device, struct hami_trace_entry *entry)
{
    struct hami_device_now now = {device, percent_of(device), hami_now_ns()};
    struct delay wait = {.ns = 0};
    const struct hami_kernel *kernel;
    uint64_t estimate;

    if (now.percent)
        wait = wait_for_share(&now);
    if (!now.percent || wait.ns)
        return wait;
    kernel = hami_kernel_find(&hami_kernels, hami_kernel_key(launch->handle, device, launch->blocks, launch->threads));
    estimate = hami_meter_estimate(&hami_meters[device], kernel);
    if (!estimate)
        estimate = HAMI_GUESS_NS;
    hami_meter_pass(device, now.ns + LATE_NS);
    hami_meter_prepay(&now, estimate);
    hami_meter_keep_estimate(device, estimate, now.ns);
    note_paid(entry, kernel, true, estimate);
    entry->type = HAMI_TRACE_UNTIMED;
    return wait;
}

static struct delay attempt_with_lock(const struct hami_launch *launch, uint64_t id, int device, CUstream handle,
                                      struct hami_timed_launch *timed, struct hami_trace_entry *entry)
{
    struct delay wait;

    if (!hami_meter_lock(device))
        return attempt_untimed(launch, device, entry);
    wait = attempt(launch, stream_with(id, device, handle), timed, entry);
    hami_meter_unlock(device);
    return wait;
}

static void sleep_before(struct delay delay, int device, struct hami_wait *wait, bool is_first)
{
    uint64_t began_ns = hami_now_ns(), slept_ns;

    hami_region_begin_wait(device, is_first);
    hami_sleep_ns(delay.ns);
    slept_ns = hami_now_ns() - began_ns;
    hami_region_end_wait(device, slept_ns);
    hami_wait_add(wait, delay.reason, device, slept_ns);
}

/* Add a launch to the trace, unless it paid nothing. */
static void trace(struct hami_trace_entry *entry, const struct hami_wait *waited)
{
    if (!entry->type)
        return;
    for (int reason = 0; reason < HAMI_WAIT_PRIORITY; reason++)
        entry->waited_us[reason] = (uint32_t)(waited->slept_ns[reason] / 1000);
    hami_trace_add(entry);
}

/* For launches that need the clock: the stream's lease is used up, or the cost of the kernel or the stream itself is unknown. */
static void __attribute__((noinline)) pass_by_the_clock(const struct hami_launch *launch, struct hami_timed_launch *timed)
{
    CUstream handle = handle_of(launch->stream, launch->is_per_thread);
    struct hami_wait waited = {.slept_ns = {0}};
    uint64_t id = id_of(handle);
    int device = device_of(id, handle), mode;
    struct hami_trace_entry entry = {.stream = id, .device = (uint16_t)device};
    bool is_first = true;
    struct delay wait;

    if (device < 0 || hami_is_capturing(launch->stream, launch->is_per_thread))
        return;
    hami_trace_begin();
    do {
        mode = hami_relax_capture_mode();
        wait = attempt_with_lock(launch, id, device, handle, timed, &entry);
        hami_restore_capture_mode(mode);
        hami_watcher_wake(read_limits);
        if (wait.ns)
            sleep_before(wait, device, &waited, is_first);
        is_first = false;
    } while (wait.ns);
    if (hami_trace_is_on())
        trace(&entry, &waited);
}

/* The stream's device is read once, because another stream may take the entry. */
static bool pass_on_lease(const struct hami_launch *launch)
{
    struct hami_stream *stream = hami_stream_find(probable_id_of(handle_of(launch->stream, launch->is_per_thread)));
    const struct hami_kernel *kernel;
    uint64_t estimate;
    int device;

    if (!stream)
        return false;
    device = atomic_load_explicit(&stream->device, memory_order_relaxed);
    if (!hami_region_core_percent(device))
        return true;
    kernel = hami_kernel_find(&hami_kernels, hami_kernel_key(launch->handle, device, launch->blocks, launch->threads));
    estimate = hami_meter_estimate(&hami_meters[device], kernel);
    return estimate && hami_stream_take(stream, estimate);
}

/* The time at which the container asked its monitor is shared by its processes. */
static void obey_monitor(struct hami_region *region)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    hami_priority_pass(region, shared ? &shared->monitor_asked_at_ns : NULL);
}

void hami_limiter_enter(const struct hami_launch *launch, struct hami_timed_launch *timed)
{
    struct hami_region *region = hami_region();
    uint64_t second;

    timed->from = NULL;
    if (__builtin_expect(!region, 0)) {
        if (hami_inside || !hami_start())
            return;
        region = hami_region();
    }
    if (__builtin_expect(atomic_load_explicit(&region->recent_kernel, memory_order_relaxed) != HAMI_RECENT_ACTIVE, 0) &&
        !hami_inside && !(atomic_load(&region->recent_kernel) < 0 && hami_is_capturing(launch->stream, launch->is_per_thread)))
        obey_monitor(region);
    second = (uint64_t)time(NULL);
    if (__builtin_expect(second != atomic_load_explicit(&looked_second, memory_order_relaxed), 0))
        new_second(region, second);
    if (!is_limiting(region) || hami_inside)
        return;
    if (!pass_on_lease(launch))
        pass_by_the_clock(launch, timed);
}

void hami_limiter_leave(struct hami_timed_launch *timed, CUresult result)
{
    int mode = hami_relax_capture_mode();
    struct hami_device_now now;
    bool is_locked;

    timed->launched_ns = hami_now_ns();
    is_locked = hami_meter_lock(timed->device);
    now = (struct hami_device_now){timed->device, percent_of(timed->device), hami_now_ns()};
    if (is_locked) {
        hami_stream_end_timed(timed, result == CUDA_SUCCESS, &now);
        hami_meter_unlock(timed->device);
    } else {
        hami_stream_abandon_timed(timed, result == CUDA_SUCCESS, &now);
    }
    hami_restore_capture_mode(mode);
}

static void __attribute__((noinline)) note_wait(CUstream handle)
{
    uint64_t id = id_of(handle);
    int device = device_of(id, handle), mode;
    struct hami_device_now now;
    struct hami_stream *stream;

    if (device < 0 || hami_is_capturing(handle, false))
        return;
    mode = hami_relax_capture_mode();
    if (hami_meter_lock(device)) {
        now = (struct hami_device_now){device, percent_of(device), hami_now_ns()};
        stream = stream_with(id, device, handle);
        if (stream)
            hami_stream_note_wait(stream, &now);
        hami_meter_unlock(device);
    } else {
        hami_stream_miss_wait(id);
    }
    hami_restore_capture_mode(mode);
}

void hami_limiter_note_wait(CUstream stream, bool is_per_thread)
{
    const struct hami_region *region = hami_region();

    if (region && !atomic_load_explicit(&looked_second, memory_order_relaxed))
        look_for_limits();
    if (region && is_limiting(region) && !hami_inside)
        note_wait(handle_of(stream, is_per_thread));
}

void hami_limiter_end_stream(CUstream stream)
{
    const struct hami_stream *known;
    int device;

    if (hami_inside || !stream)
        return;
    known = hami_stream_find(stream_id(stream, NULL));
    if (!known)
        return;
    device = known->device;
    if (!hami_meter_lock(device)) {
        hami_stream_miss_end(stream_id(stream, NULL));
        return;
    }
    hami_stream_end(stream_id(stream, NULL), device);
    hami_meter_unlock(device);
}

void hami_limiter_end_context(CUcontext context)
{
    int device = hami_inside || !context ? -1 : hami_event_pool_device(context);

    if (device < 0)
        return;
    if (!hami_meter_lock_to_end(device)) {
        hami_event_pool_lose(context);
        return;
    }
    hami_streams_end_context(context, device);
    hami_meter_unlock(device);
}

void hami_limiter_forget(void)
{
    hami_meter_forget_locks();
    hami_streams_forget();
    hami_watcher_forget();
}
