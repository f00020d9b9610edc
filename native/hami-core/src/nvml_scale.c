#include "nvml_scale.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bucket.h"
#include "gpu_time.h"
#include "hooks.h"
#include "limiter.h"
#include "region.h"
#include "scale.h"

/* More often than NVML's shortest window ends, which is 1/6 s. Source: NVML API reference, nvmlDeviceGetProcessUtilization. */
#define ASK_NS 100000000u

/* Who asks keeps the task while it asks; another takes over when it has not for so long. */
#define ASKER_LEASE_NS 500000000u

/* Windows are between these; the time between two samples is a window, or several if some were empty. */
#define WINDOW_MIN_US 50000u
#define WINDOW_MAX_US 1100000u

enum { SAMPLES_MAX = 512 };

enum { UNASKED, USABLE, UNUSABLE };

/* What the container had been charged, at each of the last times that were asked: longer than the longest window and its delay. */
enum { NOTES_MAX = 16 };

struct note {
    uint64_t at_ns, charged_ns;
};

struct asked {
    nvmlDevice_t handle;
    uint64_t seen_us, window_us;
    struct hami_scale scale;
    struct note notes[NOTES_MAX]; /* the newest first */
    int64_t unsettled_ns; /* what NVML counted beyond what was charged, not debited yet */
};

static struct asked asked[HAMI_DEVICES_MAX];
static int nvml_state;
static uint64_t next_ns;

void hami_nvml_scale_forget(void)
{
    memset(asked, 0, sizeof(asked));
    nvml_state = UNASKED;
    next_ns = 0;
}

static bool can_ask(void)
{
    if (nvml_state == UNASKED)
        nvml_state = hami_hooks_load(HAMI_LIBRARY_NVML) && hami_real.nvmlInit_v2 && hami_real.nvmlDeviceGetHandleByUUID &&
                             hami_real.nvmlDeviceGetProcessUtilization && hami_real.nvmlInit_v2() == NVML_SUCCESS
                         ? USABLE
                         : UNUSABLE;
    return nvml_state == USABLE;
}

/* Whether this process is the one that asks about the device. */
static bool is_asker(struct hami_gpu_time_device *device, uint64_t now_ns)
{
    uint64_t self = (uint64_t)getpid(), until = atomic_load(&device->asked_until_ns);

    if (atomic_load(&device->asker) != self && until > now_ns && until - now_ns <= ASKER_LEASE_NS)
        return false;
    atomic_store(&device->asker, self);
    atomic_store(&device->asked_until_ns, now_ns + ASKER_LEASE_NS);
    return true;
}

/* Whether the pid is one of the container's. `are_known` becomes false when it has a process whose host pid is not known. */
static bool is_own(unsigned int pid, bool *are_known)
{
    struct hami_region *region = hami_region();
    int32_t count = atomic_load(&region->proc_num);
    bool is_found = false;

    for (int index = 0; index < count && index < HAMI_SLOTS_MAX; index++) {
        struct hami_slot *slot = &region->procs[index];

        if (!atomic_load(&slot->pid))
            continue;
        *are_known &= atomic_load(&slot->host_pid) != 0;
        is_found |= (unsigned int)atomic_load(&slot->host_pid) == pid;
    }
    return is_found;
}

/*
 * The container's percentage in the newest window, and when that ended; 0 when only others are named. Returns false when it is not
 * known.
 */
static bool ask_percent(struct asked *device, unsigned *percent, uint64_t *ended_us)
{
    static nvmlProcessUtilizationSample_t samples[SAMPLES_MAX];
    unsigned int count = SAMPLES_MAX;
    bool are_known = true;

    if (hami_real.nvmlDeviceGetProcessUtilization(device->handle, samples, &count, device->seen_us) != NVML_SUCCESS)
        return false;
    *percent = 0;
    *ended_us = 0;
    for (unsigned int index = 0; index < count && index < SAMPLES_MAX; index++)
        if (samples[index].timeStamp > *ended_us)
            *ended_us = samples[index].timeStamp;
    for (unsigned int index = 0; index < count && index < SAMPLES_MAX; index++) {
        bool is_newest = samples[index].timeStamp + WINDOW_MIN_US >= *ended_us;

        if (is_own(samples[index].pid, &are_known) && is_newest)
            *percent += samples[index].smUtil;
    }
    return are_known && *ended_us > device->seen_us;
}

/* NVML's times are of the wall clock. */
static uint64_t monotonic_ns(uint64_t wall_us, uint64_t now_ns)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return now_ns - ((uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - wall_us * 1000u);
}

static void note(int index, uint64_t now_ns)
{
    const struct hami_gpu_time_device *shared = &hami_gpu_time()->devices[index];
    struct note *notes = asked[index].notes;

    memmove(notes + 1, notes, (NOTES_MAX - 1) * sizeof(*notes));
    notes[0] = (struct note){now_ns, atomic_load(&shared->charged_ns)};
}

/* What had been charged then, on the straight line between two notes. Returns false when that is not known. */
static bool charged_by(const struct note *notes, uint64_t at_ns, uint64_t *charged_ns)
{
    const struct note *later = notes, *earlier;
    int64_t part_us, whole_us;

    while (later + 2 < notes + NOTES_MAX && later[1].at_ns > at_ns)
        later++;
    earlier = later + 1;
    if (!earlier->at_ns || earlier->at_ns > at_ns || later->at_ns < at_ns)
        return false;
    part_us = (int64_t)(at_ns - earlier->at_ns) / 1000;
    whole_us = (int64_t)(later->at_ns - earlier->at_ns) / 1000;
    *charged_ns = earlier->charged_ns + (uint64_t)((int64_t)(later->charged_ns - earlier->charged_ns) * part_us / (whole_us + 1));
    return true;
}

/* Debit a part of the difference at a time, over about a window, so that none of it is felt at once. */
static void settle(int index, uint64_t now_ns)
{
    struct asked *device = &asked[index];
    int64_t window_ns = (int64_t)device->window_us * 1000, part = device->unsettled_ns;

    if (window_ns > ASK_NS)
        part = part * ASK_NS / window_ns;
    device->unsettled_ns -= part;
    hami_bucket_debit(&hami_gpu_time()->devices[index].paid_at, now_ns, part, hami_limiter_percent(index));
}

/* Compare a window's accounts. */
static void compare(int index, uint64_t used_ns, uint64_t from_ns, uint64_t to_ns)
{
    struct asked *device = &asked[index];
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t before, after;
    bool is_first = !device->scale.busy_ns;

    atomic_store(&shared->devices[index].scale,
                 hami_scale_add(&device->scale, used_ns, hami_timeline_busy_ns(&shared->timelines[index], from_ns, to_ns)));
    if (is_first || !charged_by(device->notes, from_ns, &before) || !charged_by(device->notes, to_ns, &after))
        return;
    device->unsettled_ns += (int64_t)(used_ns - (after - before));
}

static void follow(int index, uint64_t now_ns)
{
    struct asked *device = &asked[index];
    uint64_t ended_us, since_us, ended_ns, window_ns;
    unsigned percent;

    note(index, now_ns);
    settle(index, now_ns);
    if (!device->handle && hami_real.nvmlDeviceGetHandleByUUID(hami_region()->uuids[index], &device->handle) != NVML_SUCCESS)
        return;
    if (!ask_percent(device, &percent, &ended_us))
        return;
    since_us = device->seen_us ? ended_us - device->seen_us : 0;
    device->seen_us = ended_us;
    if (since_us >= WINDOW_MIN_US && since_us <= WINDOW_MAX_US && (!device->window_us || since_us < device->window_us))
        device->window_us = since_us;
    if (!device->window_us)
        return;
    ended_ns = monotonic_ns(ended_us, now_ns);
    window_ns = device->window_us * 1000u;
    compare(index, window_ns / 100 * percent, ended_ns - window_ns, ended_ns);
}

void hami_nvml_scale_follow(uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (!shared || now_ns < next_ns)
        return;
    next_ns = now_ns + ASK_NS;
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (hami_meters[device].own_ns && hami_limiter_percent(device) && is_asker(&shared->devices[device], now_ns) && can_ask())
            follow(device, now_ns);
}
