#include "region_limits.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "limits_file.h"
#include "lock_rank.h"
#include "log.h"
#include "options.h"
#include "region_map.h"

struct limits {
    uint64_t memory_bytes, core_percent;
};

static const struct limits no_limits = {0, 100}, nothing = {HAMI_REFUSE_ALL_BYTES, HAMI_REFUSE_ALL_PERCENT};

/* The devices of which this process gets nothing. */
static _Atomic bool is_refused[HAMI_DEVICES_MAX];

/* The limits of this process alone. */
static struct {
    _Atomic uint64_t memory_bytes, core_percent;
} own[HAMI_DEVICES_MAX];

/* The newest usable file, once it was replaced; guarded by the mutex. */
static struct hami_limits_file replaced;
static pthread_mutex_t file_mutex = PTHREAD_MUTEX_INITIALIZER;

/* The caller holds the mutex. */
static const struct hami_limits_file *granted(void)
{
    return replaced.state == HAMI_LIMITS_READ ? &replaced : hami_options()->granted;
}

int hami_region_device_in(const struct hami_region *region, const char *uuid)
{
    for (int device = 0; uuid[0] && device < HAMI_DEVICES_MAX; device++)
        if (strncmp(region->uuids[device], uuid, HAMI_UUID_BYTES) == 0)
            return device;
    return -1;
}

/*
 * Return for each device the `_<i>` of its limits: its place in the list of UUIDs. The other devices get the remaining limits in
 * region order, so no device goes without the limits that the environment has for it.
 */
static void order_of_limits(const struct hami_region *region, int limit_of[HAMI_DEVICES_MAX])
{
    const struct hami_options *options = hami_options();
    const char *entry = options->device_uuids[0] ? options->device_uuids : options->visible_devices;
    bool is_taken[HAMI_DEVICES_MAX] = {false};
    int next = 0;

    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        limit_of[device] = -1;
    for (int index = 0; *entry && index < HAMI_DEVICES_MAX; index++) {
        size_t length = strcspn(entry, ",");
        char uuid[HAMI_UUID_BYTES] = "";
        int device;

        if (length < sizeof(uuid))
            memcpy(uuid, entry, length);
        device = hami_region_device_in(region, uuid);
        if (device >= 0 && limit_of[device] < 0) {
            limit_of[device] = index;
            is_taken[index] = true;
        }
        entry += length + (entry[length] == ',');
    }
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        if (limit_of[device] >= 0)
            continue;
        while (is_taken[next])
            next++;
        limit_of[device] = next++;
    }
}

static void environment_limits(const struct hami_region *region, struct limits limits[HAMI_DEVICES_MAX])
{
    int limit_of[HAMI_DEVICES_MAX];

    order_of_limits(region, limit_of);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        limits[device] = (struct limits){hami_options()->memory_limit_bytes[limit_of[device]],
                                         hami_options()->sm_limit_percent[limit_of[device]]};
}

static struct limits granted_limits(const struct hami_limits_file *file, const char *uuid)
{
    const struct hami_limits_device *device = hami_limits_of(file, uuid);

    if (!uuid[0])
        return no_limits;
    return device ? (struct limits){device->memory_bytes, device->core_percent} : nothing;
}

/* Write the limits that the region should have. The caller holds the mutex. */
static void wanted_limits(const struct hami_region *region, struct limits limits[HAMI_DEVICES_MAX])
{
    const struct hami_limits_file *file = granted();

    if (file->state == HAMI_LIMITS_MISSING) {
        environment_limits(region, limits);
        return;
    }
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        limits[device] = granted_limits(file, region->uuids[device]);
}

/* Store limits where they differ. With `is_trial` only return whether any does. */
static bool store(struct hami_region *region, const struct limits limits[HAMI_DEVICES_MAX], bool is_trial)
{
    bool is_changed = false;

    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        if (atomic_load(&region->limit[device]) == limits[device].memory_bytes &&
            atomic_load(&region->sm_limit[device]) == limits[device].core_percent)
            continue;
        is_changed = true;
        if (is_trial)
            break;
        atomic_store(&region->limit[device], limits[device].memory_bytes);
        atomic_store(&region->sm_limit[device], limits[device].core_percent);
    }
    return is_changed;
}

/* Other processes may have read a file that this one cannot use: then what the region has stays. */
static bool may_store(const struct hami_region *region)
{
    return granted()->state != HAMI_LIMITS_UNUSABLE || atomic_load(&region->initialized_flag) != HAMI_REGION_MAGIC;
}

bool hami_limits_write(struct hami_region *region, bool is_trial)
{
    struct limits limits[HAMI_DEVICES_MAX];
    bool is_changed = region->priority != hami_options()->priority;

    hami_lock(&file_mutex, HAMI_RANK_LIMITS);
    wanted_limits(region, limits);
    if (may_store(region) && store(region, limits, is_trial))
        is_changed = true;
    hami_unlock(&file_mutex, HAMI_RANK_LIMITS);
    if (!is_trial)
        region->priority = hami_options()->priority;
    return is_changed;
}

void hami_limits_write_new(struct hami_region *region, const bool is_new[HAMI_DEVICES_MAX])
{
    struct limits limits[HAMI_DEVICES_MAX];

    hami_lock(&file_mutex, HAMI_RANK_LIMITS);
    wanted_limits(region, limits);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (!is_new[device])
            limits[device] = (struct limits){atomic_load(&region->limit[device]), atomic_load(&region->sm_limit[device])};
    if (may_store(region))
        store(region, limits, false);
    hami_unlock(&file_mutex, HAMI_RANK_LIMITS);
}

/* The caller holds the mutex. */
static void store_granted(struct hami_region *region)
{
    struct limits limits[HAMI_DEVICES_MAX];

    if (granted()->state != HAMI_LIMITS_READ)
        return;
    wanted_limits(region, limits);
    store(region, limits, false);
}

void hami_limits_read_own(const struct hami_region *region)
{
    struct limits limits[HAMI_DEVICES_MAX];

    environment_limits(region, limits);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        const struct limits *mine = atomic_load(&is_refused[device])                         ? &nothing
                                    : hami_options()->granted->state == HAMI_LIMITS_MISSING  ? &no_limits
                                    : hami_options()->granted->state == HAMI_LIMITS_UNUSABLE ? &nothing
                                                                                             : &limits[device];

        atomic_store(&own[device].memory_bytes, mine->memory_bytes);
        atomic_store(&own[device].core_percent, mine->core_percent);
    }
}

void hami_limits_refuse(int device)
{
    atomic_store(&is_refused[device], true);
    atomic_store(&own[device].memory_bytes, nothing.memory_bytes);
    atomic_store(&own[device].core_percent, nothing.core_percent);
}

void hami_limits_refuse_all(void)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        hami_limits_refuse(device);
}

/*
 * Read the file again if it was replaced. Returns whether there is a new one. While it is unusable, which is reported once, the
 * former limits stay. The caller holds the mutex.
 */
static bool reread(void)
{
    static struct hami_limits_file fresh;
    const char *path = hami_limits_path();
    bool is_reported = fresh.state == HAMI_LIMITS_UNUSABLE;

    if (granted()->state != HAMI_LIMITS_READ || !hami_limits_is_replaced(path, &granted()->identity) ||
        (is_reported && !hami_limits_is_replaced(path, &fresh.identity)))
        return false;
    hami_limits_read(path, &fresh);
    if (fresh.state == HAMI_LIMITS_READ) {
        replaced = fresh;
        hami_log(HAMI_LOG_DECISION, "%s was replaced: its limits hold from now on", path);
    } else if (fresh.state == HAMI_LIMITS_UNUSABLE && !is_reported) {
        hami_log(HAMI_LOG_ERROR, "%s cannot be used: %s: the former limits stay", path, fresh.problem);
    }
    return fresh.state == HAMI_LIMITS_READ;
}

void hami_limits_write_granted(struct hami_region *region)
{
    hami_lock(&file_mutex, HAMI_RANK_LIMITS);
    reread();
    store_granted(region);
    hami_unlock(&file_mutex, HAMI_RANK_LIMITS);
}

void hami_region_follow_limits(void)
{
    static _Atomic time_t looked_at;
    time_t now;

    if (hami_options()->granted->state != HAMI_LIMITS_READ || !hami_region())
        return;
    now = time(NULL);
    if (atomic_load_explicit(&looked_at, memory_order_relaxed) == now || atomic_exchange(&looked_at, now) == now ||
        !hami_try_lock(&file_mutex, HAMI_RANK_LIMITS))
        return;
    if (reread())
        store_granted(hami_region());
    hami_unlock(&file_mutex, HAMI_RANK_LIMITS);
}

uint64_t hami_region_limit(int device)
{
    struct hami_region *region = hami_region();
    uint64_t limit, lower;

    if (!region || device < 0)
        return 0;
    hami_region_follow_limits();
    limit = atomic_load_explicit(&region->limit[device], memory_order_relaxed);
    lower = atomic_load_explicit(&own[device].memory_bytes, memory_order_relaxed);
    return lower && (!limit || lower < limit) ? lower : limit;
}

unsigned hami_region_core_percent(int device)
{
    struct hami_region *region = hami_region();
    uint64_t percent, lower;

    if (!region || device < 0)
        return 0;
    percent = atomic_load_explicit(&region->sm_limit[device], memory_order_relaxed);
    lower = atomic_load_explicit(&own[device].core_percent, memory_order_relaxed);
    if (lower < 100 && (!percent || lower < percent))
        percent = lower;
    return percent < 100 ? (unsigned)percent : 0;
}

void hami_limits_forget(void)
{
    pthread_mutex_init(&file_mutex, NULL);
}
