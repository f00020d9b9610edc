#include "hardware/limits.h"

#include <stdio.h>

#include "driver/conditions.h"
#include "hardware/state.h"

static int64_t present_load(void)
{
    return conditions_number("driver", "loads", 1);
}

static bool is_valid(const struct hw_limit *limit)
{
    return limit->cgroup && limit->load == present_load();
}

static struct hw_limit *find(int device, uint64_t cgroup)
{
    for (int index = 0; index < hw_state->limits_end; index++) {
        struct hw_limit *limit = &hw_state->limits[index];

        if (limit->cgroup == cgroup && limit->device == device && is_valid(limit))
            return limit;
    }
    return NULL;
}

/* Return a place for another limit: a free one, or that of a cgroup which is gone. */
static struct hw_limit *place(void)
{
    if (hw_state->limits_end < HW_LIMITS_MAX)
        return &hw_state->limits[hw_state->limits_end++];
    for (int index = 0; index < HW_LIMITS_MAX; index++) {
        struct hw_limit *limit = &hw_state->limits[index];

        if (!is_valid(limit) || cgroup_of_folder(limit->path) != limit->cgroup)
            return limit;
    }
    return NULL;
}

static bool is_in(const struct hw_process *process, uint64_t cgroup)
{
    for (int depth = 0; depth < CGROUP_DEPTH_MAX && process->cgroups[depth]; depth++)
        if (process->cgroups[depth] == cgroup)
            return true;
    return false;
}

static uint64_t used_by(int device, uint64_t cgroup)
{
    uint64_t used = 0;

    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid && is_in(&hw_state->processes[position], cgroup))
            used += hw_charged(position, device);
    return used;
}

bool hw_limit_set(int device, uint64_t cgroup, const char *path, uint64_t soft_bytes, uint64_t hard_bytes)
{
    struct hw_limit *limit;

    hw_lock();
    limit = find(device, cgroup);
    if (!limit)
        limit = place();
    if (limit) {
        *limit = (struct hw_limit){cgroup, device, present_load(), soft_bytes, hard_bytes, ""};
        snprintf(limit->path, sizeof(limit->path), "%s", path);
    }
    hw_unlock();
    return limit != NULL;
}

bool hw_limit_get(int device, uint64_t cgroup, struct hw_limit_state *state)
{
    const struct hw_limit *limit;

    hw_lock();
    hw_reap_dead();
    limit = find(device, cgroup);
    if (limit)
        *state = (struct hw_limit_state){limit->soft_bytes, limit->hard_bytes, used_by(device, cgroup)};
    hw_unlock();
    return limit != NULL;
}

void hw_memory_seen(int device, uint64_t *total_bytes, uint64_t *used_bytes)
{
    uint64_t cgroups[CGROUP_DEPTH_MAX], device_free, own_free;
    const struct hw_limit *limit;

    *total_bytes = hw_device(device)->memory_bytes;
    *used_bytes = hw_memory_used(device);
    cgroup_of_process(cgroups);
    hw_lock();
    limit = cgroups[0] ? find(device, cgroups[0]) : NULL;
    if (limit && limit->hard_bytes != HW_NO_HARD_LIMIT) {
        uint64_t used = used_by(device, cgroups[0]);

        device_free = *total_bytes > *used_bytes ? *total_bytes - *used_bytes : 0;
        own_free = limit->hard_bytes > used ? limit->hard_bytes - used : 0;
        *total_bytes = limit->hard_bytes;
        *used_bytes = *total_bytes - (own_free < device_free ? own_free : device_free);
    }
    hw_unlock();
}

static bool is_within(const struct hw_process *process, int device, uint64_t more_bytes)
{
    for (int index = 0; index < hw_state->limits_end; index++) {
        const struct hw_limit *limit = &hw_state->limits[index];

        if (limit->device == device && is_valid(limit) && is_in(process, limit->cgroup) && limit->hard_bytes != HW_NO_HARD_LIMIT &&
            used_by(device, limit->cgroup) + more_bytes > limit->hard_bytes)
            return false;
    }
    return true;
}

bool hw_limit_allows(const struct hw_process *process, int device, uint64_t more_bytes)
{
    if (is_within(process, device, more_bytes))
        return true;
    hw_reap_dead();
    return is_within(process, device, more_bytes);
}
