#include "nvml_scale.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

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

struct asked {
    nvmlDevice_t handle;
    uint64_t seen_us, window_us;
    struct hami_scale scale;
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

static void follow(int index, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    struct asked *device = &asked[index];
    uint64_t ended_us, since_us, ended_ns, busy_ns;
    unsigned percent;

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
    busy_ns = hami_timeline_busy_ns(&shared->timelines[index], ended_ns - device->window_us * 1000u, ended_ns);
    atomic_store(&shared->devices[index].scale, hami_scale_add(&device->scale, percent, device->window_us * 1000u, busy_ns));
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
