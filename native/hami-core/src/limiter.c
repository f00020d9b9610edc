#include "limiter.h"

#include <stdatomic.h>
#include <time.h>

#include "bucket.h"
#include "clock.h"
#include "hooks.h"
#include "options.h"
#include "priority.h"
#include "process.h"
#include "region.h"
#include "watcher.h"

/*
 * How long a launch sleeps that may not start yet: until the bucket holds what the device runs of a container before it takes the next
 * one's turn, since every turn that is cut short costs both. Less than a program notices, and at most so long that a changed limit is
 * soon felt.
 */
#define TURN_NS 1800000u
#define NAP_LEAST_MAX_NS 20000000u
#define NAP_MAX_NS 50000000u

/* A process is late by no more than this for its turn, else another takes it. */
#define LATE_NS 5000000u

/* With so much unused there is enough for all of a container's processes at once: more than is lost while one hands its turn to another. */
#define PLENTY_NS (HAMI_BUCKET_KEPT_NS / 2)

/* How often a launch looks that waits for the device, not for the bucket. */
#define DEVICE_NAP_NS 1000000u

/*
 * What may be queued on a device while it is limited: enough to bridge a nap, little enough that what was estimated too low does not
 * matter, and that the driver's queue of 1024 launches a stream never fills.
 */
#define QUEUED_MAX_NS 30000000u
#define QUEUED_MAX_LAUNCHES 512u

#define CAPTURE_MODE_RELAXED 2

/* Whether any device of the region may have to be limited; looked up once a second. */
enum bearing { NEVER, WHILE_SWITCHED_ON, ALWAYS };

/*
 * The lanes of the thread's default streams when it last asked in which context it is: the legacy stream and its own. Known only in a
 * process that has one device, so that whatever the thread did with contexts since, the right device pays, and no more than a lease
 * counts for the wrong context.
 */
static _Thread_local uint64_t default_ids[2] __attribute__((tls_model("initial-exec")));

static _Atomic int bearing;
static _Atomic uint64_t looked_second, noted_second;

static unsigned limit_of(const struct hami_region *region, int device)
{
    uint64_t percent = atomic_load_explicit(&region->sm_limit[device], memory_order_relaxed);

    return percent < 100 ? (unsigned)percent : 0;
}

static bool is_limiting(const struct hami_region *region)
{
    int now = atomic_load_explicit(&bearing, memory_order_relaxed);

    return now == ALWAYS ||
           (now == WHILE_SWITCHED_ON && atomic_load_explicit(&region->utilization_switch, memory_order_relaxed) != 0);
}

unsigned hami_limiter_percent(int device)
{
    const struct hami_region *region = hami_region();

    return region && is_limiting(region) ? limit_of(region, device) : 0;
}

static void look_for_limits(const struct hami_region *region)
{
    bool has_limit = false;
    int policy = hami_options()->utilization_policy;

    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        has_limit |= limit_of(region, device) != 0;
    atomic_store_explicit(&bearing,
                          !has_limit || policy == HAMI_POLICY_DISABLE ? NEVER
                          : policy == HAMI_POLICY_FORCE               ? ALWAYS
                                                                      : WHILE_SWITCHED_ON,
                          memory_order_relaxed);
}

/* Once a second at most: what a launch notes, and what it need not look at each time. */
static void new_second(struct hami_region *region, uint64_t second)
{
    atomic_store_explicit(&looked_second, second, memory_order_relaxed);
    look_for_limits(region);
    if (second < atomic_load(&noted_second) + (uint64_t)hami_options()->kernel_interval_seconds)
        return;
    atomic_store(&noted_second, second);
    hami_priority_note_time(region, second);
}

static bool is_capturing(const struct hami_launch *launch)
{
    __typeof__(&cuStreamIsCapturing) ask = launch->is_per_thread && hami_real.cuStreamIsCapturing_ptsz
                                               ? hami_real.cuStreamIsCapturing_ptsz
                                               : hami_real.cuStreamIsCapturing;
    CUstreamCaptureStatus status;

    return ask && HAMI_INSIDE(ask(launch->stream, &status)) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The default streams by their explicit handles. */
static CUstream stream_of(const struct hami_launch *launch)
{
    if (launch->stream)
        return launch->stream;
    return launch->is_per_thread ? CU_STREAM_PER_THREAD : CU_STREAM_LEGACY;
}

/* A stream's handle is its lane's name; a default stream is its context's, or its thread's in the context. */
static uint64_t lane_id(CUstream stream, CUcontext context)
{
    if (stream == CU_STREAM_LEGACY)
        return (uint64_t)(uintptr_t)context + 1;
    if (stream == CU_STREAM_PER_THREAD)
        return ((uint64_t)(uintptr_t)context ^ (uint64_t)(uintptr_t)&hami_inside << 16) + 2;
    return (uint64_t)(uintptr_t)stream;
}

static CUcontext current_context(void)
{
    CUcontext context = NULL;

    if (hami_real.cuCtxGetCurrent)
        HAMI_INSIDE(hami_real.cuCtxGetCurrent(&context));
    return context;
}

static uint64_t id_of(CUstream stream)
{
    uint64_t id;

    if (stream != CU_STREAM_LEGACY && stream != CU_STREAM_PER_THREAD)
        return lane_id(stream, NULL);
    id = lane_id(stream, current_context());
    if (hami_process_ordinals() == 1)
        default_ids[stream == CU_STREAM_PER_THREAD] = id;
    return id;
}

/* The same as far as a lease needs it, mostly without asking the driver. */
static uint64_t probable_id_of(CUstream stream)
{
    uint64_t known = stream == CU_STREAM_LEGACY       ? default_ids[0]
                     : stream == CU_STREAM_PER_THREAD ? default_ids[1]
                                                      : 0;

    return known ? known : id_of(stream);
}

/* Calls that a capture in another thread forbids are allowed in between; events are no part of any capture. */
static int exchange_capture_mode(int mode)
{
    if (hami_real.cuThreadExchangeStreamCaptureMode)
        HAMI_INSIDE(hami_real.cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* How long the launch must wait; 0 when it may start. */
static uint64_t wait_ns(int device, unsigned percent, const struct hami_kernel *kernel, uint64_t now_ns)
{
    const struct hami_meter *meter = &hami_meters[device];
    const _Atomic uint64_t *paid_at = hami_gpu_time() ? &hami_gpu_time()->devices[device].paid_at : NULL;
    uint64_t probed = atomic_load_explicit(&kernel->probed_at_ns, memory_order_relaxed);
    uint64_t wait;

    if (!paid_at)
        return 0;
    if (!atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed) && probed && now_ns - probed < HAMI_PATIENCE_NS)
        return DEVICE_NAP_NS;
    if ((meter->queued_ns >= QUEUED_MAX_NS || meter->queued_launches >= QUEUED_MAX_LAUNCHES) &&
        now_ns - meter->progress_ns < HAMI_PATIENCE_NS)
        return DEVICE_NAP_NS;
    wait = hami_bucket_wait_ns(paid_at, now_ns);
    if (!wait && (hami_bucket_kept_ns(paid_at, now_ns) > PLENTY_NS || !hami_meter_must_yield(device, now_ns)))
        return 0;
    wait = clamp(wait, clamp(TURN_NS * 100ull / percent, 0, NAP_LEAST_MAX_NS), NAP_MAX_NS);
    hami_meter_wait(device, now_ns + wait + LATE_NS);
    return wait;
}

/* One attempt, under the lock. Returns how long to wait before the next; 0 when the launch has passed. */
static uint64_t attempt(const struct hami_launch *launch, CUstream stream, uint64_t id, struct hami_timed_launch *timed)
{
    struct hami_lane *lane = hami_lane_find(id);
    struct hami_kernel *kernel;
    uint64_t now = hami_now_ns(), wait;
    unsigned percent;

    if (!lane) {
        int device = hami_process_stream_device(launch->stream, launch->is_per_thread);

        if (device < 0)
            return 0;
        lane = hami_lane_make(id, device, stream, current_context());
    }
    percent = hami_limiter_percent(lane->device);
    if (!percent)
        return 0;
    kernel = hami_kernel_find(&hami_kernels, hami_kernel_key(launch->handle, lane->device, launch->blocks, launch->threads));
    hami_lane_settle(lane, now);
    wait = wait_ns(lane->device, percent, kernel, now);
    if (wait) {
        hami_lanes_pause(lane->device, lane, now);
        hami_lanes_collect(lane->device, now);
        wait = wait_ns(lane->device, percent, kernel, now);
    }
    if (!wait) {
        hami_meter_pass(lane->device, now + LATE_NS);
        hami_lane_launch(lane, kernel, now, timed);
    }
    return wait;
}

/* The clock must be read: the lane's lease is over, or its kernel not known, or its stream. */
static void __attribute__((noinline)) pass_slowly(const struct hami_launch *launch, struct hami_timed_launch *timed)
{
    CUstream stream = stream_of(launch);
    uint64_t id = id_of(stream), wait;
    int mode;

    if (is_capturing(launch))
        return;
    do {
        hami_meter_lock();
        mode = exchange_capture_mode(CAPTURE_MODE_RELAXED);
        wait = attempt(launch, stream, id, timed);
        exchange_capture_mode(mode);
        hami_meter_unlock();
        hami_watcher_wake();
        if (wait)
            hami_nap(wait);
    } while (wait);
}

static bool pass_on_lease(const struct hami_region *region, const struct hami_launch *launch)
{
    struct hami_lane *lane = hami_lane_find(probable_id_of(stream_of(launch)));
    const struct hami_kernel *kernel;
    uint64_t estimate;

    if (!lane)
        return false;
    if (!limit_of(region, lane->device))
        return true;
    kernel = hami_kernel_find(&hami_kernels, hami_kernel_key(launch->handle, lane->device, launch->blocks, launch->threads));
    estimate = hami_meter_estimate(&hami_meters[lane->device], kernel);
    return estimate && hami_lane_take(lane, estimate);
}

void hami_limiter_enter(const struct hami_launch *launch, struct hami_timed_launch *timed)
{
    struct hami_region *region = hami_region();
    uint64_t second;

    timed->from = NULL;
    if (__builtin_expect(!region, 0)) {
        if (hami_inside || !hami_process_attach())
            return;
        region = hami_region();
    }
    if (__builtin_expect(atomic_load_explicit(&region->recent_kernel, memory_order_relaxed) != HAMI_RECENT_ACTIVE, 0) && !hami_inside &&
        !(atomic_load(&region->recent_kernel) < 0 && is_capturing(launch)))
        hami_priority_pass(region);
    second = (uint64_t)time(NULL);
    if (__builtin_expect(second != atomic_load_explicit(&looked_second, memory_order_relaxed), 0))
        new_second(region, second);
    if (!is_limiting(region) || hami_inside)
        return;
    if (!pass_on_lease(region, launch))
        pass_slowly(launch, timed);
}

void hami_limiter_leave(struct hami_timed_launch *timed, CUresult result)
{
    int mode;

    hami_meter_lock();
    mode = exchange_capture_mode(CAPTURE_MODE_RELAXED);
    hami_lane_end_timed(timed, result == CUDA_SUCCESS, hami_now_ns());
    exchange_capture_mode(mode);
    hami_meter_unlock();
}

void hami_limiter_end_stream(CUstream stream)
{
    if (hami_inside || !stream)
        return;
    hami_meter_lock();
    hami_lane_end(lane_id(stream, NULL));
    hami_meter_unlock();
}

void hami_limiter_end_context(CUcontext context)
{
    if (hami_inside || !context)
        return;
    hami_meter_lock();
    hami_lanes_end_context(context);
    hami_meter_unlock();
}

void hami_limiter_forget(void)
{
    hami_meter_unlock_in_child();
    hami_lanes_forget();
    hami_watcher_forget();
}
