#include "nvml_scale.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gpu_time.h"
#include "hooks.h"
#include "long_run.h"
#include "region_map.h"
#include "scale.h"

/* More often than NVML's shortest window, 1/6 s. Source: NVML API reference, nvmlDeviceGetProcessUtilization. */
#define ASK_NS 100000000u

/* How long a process remains the one that asks NVML. If it does not ask for this long, another takes over. */
#define ASKER_LEASE_NS 500000000u

/* The longest window, and what counts as one: the time between two samples is one window, or several if some were empty. */
#define WINDOW_LONGEST_US 1000000u
#define WINDOW_MIN_US 50000u
#define WINDOW_MAX_US (WINDOW_LONGEST_US * 11 / 10)

enum { SAMPLES_MAX = 512 };

enum { UNASKED, USABLE, UNUSABLE };

/* What the container had been charged at recent times: further back than the longest window and its delay, and than patience. */
enum { NOTES_MAX = 16 };

struct note {
    uint64_t at_ns, charged_ns;
    int64_t debited_ns; /* all that was debited here */
};

/* The container's part of a window. */
struct window {
    uint64_t ended_us;
    unsigned percent; /* 0 if NVML names only other processes */
    bool is_known; /* false if the host pid of a container's process is unknown */
};

struct asked {
    nvmlDevice_t handle;
    bool is_watched; /* was asked before: windows since then contain all use of the container */
    uint64_t seen_us, window_us; /* end of the newest window; length of a window, 0 while unknown */
    uint64_t priced_ns; /* since when a scale is known; 0: it is not */
    struct hami_scale scale;
    struct note notes[NOTES_MAX]; /* newest first */
    int64_t undebited_ns; /* what NVML counted beyond the charges and is not debited yet */
    int64_t debited_ns; /* what was debited of it */
    uint64_t long_run_since_ns; /* since when a launch runs that others do not wait for; 0: there is none */
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
        nvml_state = hami_hooks_load(HAMI_LIBRARY_NVML) && hami_real.nvmlInit_v2() == NVML_SUCCESS ? USABLE : UNUSABLE;
    return nvml_state == USABLE;
}

/* Whether this process is the one that asks about a device. */
static bool is_asker(struct hami_gpu_time_device *device, uint64_t now_ns)
{
    uint64_t self = (uint64_t)getpid(), until = atomic_load(&device->asked_until_ns);

    if (atomic_load(&device->asker) != self && until > now_ns && until - now_ns <= ASKER_LEASE_NS)
        return false;
    atomic_store(&device->asker, self);
    atomic_store(&device->asked_until_ns, now_ns + ASKER_LEASE_NS);
    return true;
}

/* Whether a pid belongs to the container. `*are_known` becomes false if the host pid of one of its processes is unknown. */
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

/* Find the newest window. Returns false if there is no new one. */
static bool ask_window(const struct asked *device, struct window *window)
{
    static nvmlProcessUtilizationSample_t samples[SAMPLES_MAX];
    unsigned int count = SAMPLES_MAX;

    if (hami_real.nvmlDeviceGetProcessUtilization(device->handle, samples, &count, device->seen_us) != NVML_SUCCESS)
        return false;
    *window = (struct window){.is_known = true};
    for (unsigned int index = 0; index < count && index < SAMPLES_MAX; index++)
        if (samples[index].timeStamp > window->ended_us)
            window->ended_us = samples[index].timeStamp;
    for (unsigned int index = 0; index < count && index < SAMPLES_MAX; index++) {
        bool is_newest = samples[index].timeStamp + WINDOW_MIN_US >= window->ended_us;

        if (is_own(samples[index].pid, &window->is_known) && is_newest)
            window->percent += samples[index].smUtil;
    }
    return window->ended_us > device->seen_us;
}

/* NVML's times are wall-clock times. */
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
    notes[0] = (struct note){now_ns, atomic_load(&shared->charged_ns), asked[index].debited_ns};
}

/* Return what had been charged at a time, interpolated between two notes. False if that is unknown. */
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

/* Debit the difference in parts over about one window, so that launches do not stall at once. */
static void debit_part(const struct hami_device_now *now)
{
    struct asked *device = &asked[now->device];
    int64_t window_ns = (int64_t)device->window_us * 1000, part = device->undebited_ns;

    if (window_ns > ASK_NS)
        part = part * ASK_NS / window_ns;
    device->undebited_ns -= part;
    device->debited_ns += part;
    hami_meter_debit_first(now, part);
}

/* While a launch runs that others do not wait for, they do not wait for what was debited here since it began, either. */
static void follow_long_run(const struct hami_device_now *now)
{
    struct asked *device = &asked[now->device];
    uint64_t since = hami_long_run_since(&hami_gpu_time()->devices[now->device].long_run, now->ns);
    const struct note *then = device->notes;

    if (since == device->long_run_since_ns)
        return;
    device->long_run_since_ns = since;
    while (then + 1 < device->notes + NOTES_MAX && then[1].at_ns && then->at_ns > since)
        then++;
    if (since && device->debited_ns > then->debited_ns)
        hami_meter_debit_second(now, then->debited_ns - device->debited_ns);
}

/* Note the end of a window. The second one tells the length of windows; what an assumed length gave is dropped. */
static void note_end(struct asked *device, uint64_t ended_us)
{
    uint64_t since_us = device->seen_us ? ended_us - device->seen_us : 0;

    device->seen_us = ended_us;
    if (since_us < WINDOW_MIN_US || since_us > WINDOW_MAX_US)
        return;
    if (!device->window_us)
        memset(&device->scale, 0, sizeof(device->scale));
    if (!device->window_us || since_us < device->window_us)
        device->window_us = since_us;
}

/* Store the scale. At the first one, correct the sums that were made without it. */
static void set_price(int index, uint64_t price, bool is_first)
{
    struct hami_gpu_time_device *shared = &hami_gpu_time()->devices[index];
    uint64_t before = hami_meter_priced(index, HAMI_ONE);

    atomic_store(&shared->scale, price);
    if (is_first)
        atomic_store(&shared->cost_ns, atomic_load(&shared->cost_ns) * price / before);
}

/*
 * Compare NVML's account of a window with the charges. A window of unknown length counts as the longest possible, which makes the
 * scale too high rather than too low. Charges from before the first scale are kept.
 */
static void compare(int index, const struct window *window, uint64_t now_ns)
{
    struct asked *device = &asked[index];
    uint64_t length_ns = (device->window_us ? device->window_us : WINDOW_LONGEST_US) * 1000u;
    uint64_t to_ns = monotonic_ns(window->ended_us, now_ns), from_ns = to_ns - length_ns;
    uint64_t busy_ns = hami_timeline_busy_ns(&hami_gpu_time()->timelines[index], from_ns, to_ns);
    uint64_t used_ns = length_ns / 100 * window->percent, before, after;
    bool is_first = !device->priced_ns || from_ns < device->priced_ns;

    if (!device->window_us && used_ns > busy_ns)
        used_ns = busy_ns;
    set_price(index, hami_scale_add(&device->scale, used_ns, busy_ns), is_first);
    if (!device->priced_ns)
        device->priced_ns = now_ns;
    if (!is_first && charged_by(device->notes, from_ns, &before) && charged_by(device->notes, to_ns, &after))
        device->undebited_ns += (int64_t)(used_ns - (after - before));
}

static void follow(const struct hami_device_now *now)
{
    int index = now->device;
    struct asked *device = &asked[index];
    bool was_watched = device->is_watched;
    struct window window;

    note(index, now->ns);
    follow_long_run(now);
    debit_part(now);
    if (!device->handle && hami_real.nvmlDeviceGetHandleByUUID(hami_region()->uuids[index], &device->handle) != NVML_SUCCESS)
        return;
    device->is_watched = true;
    if (!ask_window(device, &window))
        return;
    note_end(device, window.ended_us);
    if (was_watched && window.is_known)
        compare(index, &window, now->ns);
}

void hami_nvml_scale_follow(const struct hami_limits *limits, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (!shared || now_ns < next_ns)
        return;
    next_ns = now_ns + ASK_NS;
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (hami_meters[device].own_ns && limits->percent[device] && is_asker(&shared->devices[device], now_ns) && can_ask())
            follow(&(struct hami_device_now){device, limits->percent[device], now_ns});
}
