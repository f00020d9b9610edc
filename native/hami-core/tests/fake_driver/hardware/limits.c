#include "hardware/accounting.h"

#include <stdio.h>
#include <string.h>

#include "driver/conditions.h"

static uint64_t self_bytes[HW_DEVICES_MAX]; /* set by hw_limit_self() */

/* The values of NVreg_RegistryDwords="RmMemacctMode=N", which only lowers what the kernel has. Source: https://docs.nvidia.com/deploy/mps/. */
enum { MODE_MISC = 1, MODE_DMEM = 2, MODE_AUTO = 3 };

static int64_t present_load(void)
{
    return conditions_number("driver", "loads", 1);
}

static enum hw_memacct decide(const char *root)
{
    int64_t mode = conditions_number("driver", "memacct", MODE_AUTO);

    if (!cgroup_is_supported())
        return HW_MEMACCT_NONE;
    if (mode >= MODE_DMEM && cgroup_has(root, "dmem"))
        return HW_MEMACCT_DMEM;
    if (mode >= MODE_MISC && (cgroup_has(root, "misc") || conditions_find("driver", "kernel-has-misc", NULL)))
        return HW_MEMACCT_MISC;
    return HW_MEMACCT_NONE;
}

/* Decided once a load, by the first process that sees all cgroups. One that sees none has no limits. */
enum hw_memacct hw_memacct(void)
{
    static int64_t blind_load = -1;
    char root[PATH_MAX];
    enum hw_memacct found;

    if (hw_state->memacct_load == present_load())
        return (enum hw_memacct)hw_state->memacct;
    if (blind_load == present_load())
        return HW_MEMACCT_NONE;
    cgroup_root_folder(root);
    found = decide(root);
    if (found == HW_MEMACCT_NONE) {
        blind_load = present_load();
    } else if (cgroup_is_root(root)) {
        hw_state->memacct = found;
        hw_state->memacct_load = present_load();
    }
    return found;
}

/* Return what was set at any load. */
static struct hw_limit *find_any(uint16_t pointer, int device)
{
    for (int index = 0; pointer && index < hw_state->limits_end; index++)
        if (hw_state->limits[index].pointer == pointer && hw_state->limits[index].device == device)
            return &hw_state->limits[index];
    return NULL;
}

struct hw_limit *accounting_find(uint16_t pointer, int device)
{
    struct hw_limit *limit = find_any(pointer, device);

    return limit && limit->load == present_load() ? limit : NULL;
}

bool accounting_is_old(uint16_t pointer, int device)
{
    return find_any(pointer, device) && !accounting_find(pointer, device);
}

struct hw_limit *accounting_keep(uint16_t pointer, int device)
{
    struct hw_limit *limit = find_any(pointer, device);

    for (int index = 0; pointer && !limit && index < HW_LIMITS_MAX; index++) {
        if (index >= hw_state->limits_end)
            hw_state->limits_end = index + 1;
        if (!hw_state->limits[index].pointer)
            limit = &hw_state->limits[index];
    }
    if (limit && !accounting_find(pointer, device))
        *limit = (struct hw_limit){.pointer = pointer, .device = device, .load = present_load(), .hard_bytes = HW_NO_HARD_LIMIT};
    return limit;
}

static bool has_processes(uint64_t number)
{
    for (int position = 0; position < hw_state->processes_end; position++)
        for (int depth = 0; hw_state->processes[position].pid && depth < CGROUP_DEPTH_MAX; depth++)
            if (hw_state->processes[position].groups.numbers[depth] == number)
                return true;
    return false;
}

/* Only a process that sees all cgroups can tell. */
static bool is_removed(const struct hw_group *group, bool sees_all)
{
    return sees_all && group->path[0] && cgroup_of_folder(group->path) != group->number && !has_processes(group->number);
}

/* dmem frees what it has of a cgroup. misc does neither hold the cgroup nor forget it. Source: open-gpu-kernel-modules 615.71.09, memacct.c; Linux, kernel/cgroup/dmem.c. */
static void reuse(uint16_t pointer)
{
    for (int index = 0; hw_memacct() == HW_MEMACCT_DMEM && index < hw_state->limits_end; index++)
        if (hw_state->limits[index].pointer == pointer)
            hw_state->limits[index].pointer = 0;
}

uint16_t accounting_pointer(const char *folder, uint64_t number)
{
    char root[PATH_MAX];
    struct hw_group *group = NULL;
    bool sees_all;

    cgroup_root_folder(root);
    sees_all = cgroup_is_root(root);
    for (int index = 0; index < HW_GROUPS_MAX && hw_state->groups[index].number; index++)
        if (hw_state->groups[index].number == number)
            group = &hw_state->groups[index];
    for (int index = 0; !group && index < HW_GROUPS_MAX; index++)
        if (!hw_state->groups[index].number || is_removed(&hw_state->groups[index], sees_all))
            group = &hw_state->groups[index];
    if (!group)
        return 0;
    if (group->number != number) {
        reuse((uint16_t)(group - hw_state->groups + 1));
        *group = (struct hw_group){.number = number};
    }
    if (sees_all)
        snprintf(group->path, sizeof(group->path), "%s", folder);
    return (uint16_t)(group - hw_state->groups + 1);
}

void accounting_find_groups(const char *start, struct hw_groups *groups)
{
    bool is_misc = hw_memacct() == HW_MEMACCT_MISC;
    char folder[PATH_MAX];

    memset(groups, 0, sizeof(*groups));
    if (!cgroup_is_supported())
        return;
    snprintf(folder, sizeof(folder), "%s", start);
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        groups->numbers[depth] = cgroup_of_folder(folder);
        if (!groups->numbers[depth])
            return;
        if (is_misc && misc_has(folder))
            groups->pointers[depth] = accounting_pointer(folder, groups->numbers[depth]);
        if (!cgroup_go_up(folder))
            return;
    }
}

void hw_find_groups(struct hw_groups *groups)
{
    char own[PATH_MAX];

    cgroup_own_folder(own);
    accounting_find_groups(own, groups);
}

enum hw_limit_result hw_limit_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes)
{
    enum hw_limit_result result = HW_LIMIT_NO_CGROUP;

    hw_lock();
    hw_reap_dead();
    if (cgroup_of_folder(path))
        result = hw_memacct() == HW_MEMACCT_DMEM ? dmem_set(device, path, soft_bytes, hard_bytes)
                                                 : misc_set(device, path, soft_bytes, hard_bytes);
    hw_unlock();
    return result;
}

enum hw_limit_result hw_limit_get(int device, const char *path, struct hw_limit_state *state)
{
    enum hw_limit_result result = HW_LIMIT_NO_CGROUP;

    hw_lock();
    hw_reap_dead();
    if (cgroup_of_folder(path))
        result = hw_memacct() == HW_MEMACCT_DMEM ? dmem_get(device, path, state) : misc_get(device, path, state);
    hw_unlock();
    return result;
}

/* Return the hard limit of this process's own cgroup, and what is charged to it. */
static uint64_t own_limit(int device, uint64_t *used_bytes)
{
    const struct hw_limit *limit;
    struct hw_groups groups;
    char folder[PATH_MAX];

    *used_bytes = 0;
    cgroup_own_folder(folder);
    if (hw_memacct() == HW_MEMACCT_DMEM) {
        *used_bytes = dmem_used(cgroup_of_folder(folder), device);
        return dmem_hard_limit_of(folder, device);
    }
    hw_find_groups(&groups);
    limit = accounting_find(groups.pointers[0], device);
    if (!limit)
        return HW_NO_HARD_LIMIT;
    *used_bytes = misc_used(limit);
    return limit->hard_bytes;
}

void hw_limit_self(int device, uint64_t bytes)
{
    self_bytes[device] = bytes;
}

static uint64_t charged_to_self(int device)
{
    return hw_known_process() ? hw_charged(hw_position(hw_known_process()), device) : 0;
}

void hw_memory_seen(int device, uint64_t *total_bytes, uint64_t *used_bytes)
{
    uint64_t limit_bytes, charged_bytes, device_free, own_free;

    *total_bytes = hw_device(device)->memory_bytes;
    *used_bytes = hw_memory_used(device);
    hw_lock();
    limit_bytes =
        hw_memacct() == HW_MEMACCT_NONE || hw_device(device)->parent >= 0 ? HW_NO_HARD_LIMIT : own_limit(device, &charged_bytes);
    if (limit_bytes != HW_NO_HARD_LIMIT) {
        device_free = *total_bytes > *used_bytes ? *total_bytes - *used_bytes : 0;
        own_free = limit_bytes > charged_bytes ? limit_bytes - charged_bytes : 0;
        *total_bytes = limit_bytes;
        *used_bytes = *total_bytes - (own_free < device_free ? own_free : device_free);
    }
    if (self_bytes[device]) {
        charged_bytes = charged_to_self(device);
        own_free = self_bytes[device] > charged_bytes ? self_bytes[device] - charged_bytes : 0;
        if (*total_bytes - *used_bytes > own_free)
            *used_bytes = *total_bytes - own_free;
    }
    hw_unlock();
}

/* What is on a GPU in MIG mode is never charged. */
static bool is_within(const struct hw_process *process, int device, uint64_t more_bytes)
{
    if (hw_device(device)->parent >= 0)
        return true;
    switch (hw_memacct()) {
    case HW_MEMACCT_DMEM:
        return dmem_allows(device, more_bytes);
    case HW_MEMACCT_MISC:
        return misc_allows(process, device, more_bytes);
    default:
        return true;
    }
}

bool hw_limit_allows(const struct hw_process *process, int device, uint64_t more_bytes)
{
    if (self_bytes[device] && process == hw_known_process() && charged_to_self(device) + more_bytes > self_bytes[device])
        return false;
    if (is_within(process, device, more_bytes))
        return true;
    hw_reap_dead();
    return is_within(process, device, more_bytes);
}
