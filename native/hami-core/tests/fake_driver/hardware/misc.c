/*
 * Limits in the driver's own map, for kernels without dmem. It finds the cgroup of a process by the controller misc.
 *
 * Source: open-gpu-kernel-modules 615.71.09, memacct.c.
 */
#include "hardware/accounting.h"

#include <stdio.h>

#include "driver/conditions.h"

bool misc_has(const char *folder)
{
    return !cgroup_is_root(folder) && (cgroup_has(folder, "misc") || conditions_find("driver", "kernel-has-misc", NULL));
}

/* Return the limit that holds in a cgroup: its own, or else that of the nearest one above. No other one counts. */
static struct hw_limit *nearest(const struct hw_groups *groups, int device)
{
    struct hw_limit *found = NULL;

    for (int depth = 0; !found && depth < CGROUP_DEPTH_MAX && groups->numbers[depth]; depth++)
        found = accounting_find(groups->pointers[depth], device);
    return found;
}

/* What a process had before its limit was set does not count. It gives that back last. */
static uint64_t charged(int position, int device)
{
    struct hw_share *share = &hw_state->processes[position].device[device];
    uint64_t bytes = hw_charged(position, device);

    if (share->exempt_bytes > bytes)
        share->exempt_bytes = bytes;
    return bytes - share->exempt_bytes;
}

uint64_t misc_used(const struct hw_limit *limit)
{
    uint64_t used = 0;

    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid && nearest(&hw_state->processes[position].groups, limit->device) == limit)
            used += charged(position, limit->device);
    for (int index = 0; index < hw_state->blocks_end; index++)
        if (hw_is_passed_on(&hw_state->blocks[index], limit->device) &&
            nearest(&hw_state->blocks[index].groups, limit->device) == limit)
            used += hw_state->blocks[index].bytes;
    return used;
}

enum hw_limit_result misc_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes)
{
    uint16_t pointer = cgroup_is_root(path) ? 0 : accounting_pointer(path, cgroup_of_folder(path));
    struct hw_limit *limit = accounting_find(pointer, device);
    bool is_new = !limit;

    if (cgroup_is_root(path))
        return HW_LIMIT_NOT_SUPPORTED;
    if (limit && hard_bytes < misc_used(limit))
        return HW_LIMIT_BELOW_USE;
    limit = accounting_keep(pointer, device);
    if (!limit)
        return HW_LIMIT_TOO_MANY;
    limit->soft_bytes = soft_bytes;
    limit->hard_bytes = hard_bytes;
    for (int position = 0; is_new && position < hw_state->processes_end; position++)
        if (nearest(&hw_state->processes[position].groups, device) == limit)
            hw_state->processes[position].device[device].exempt_bytes = hw_charged(position, device);
    return HW_LIMIT_DONE;
}

enum hw_limit_result misc_get(int device, const char *path, struct hw_limit_state *state)
{
    const struct hw_limit *limit;
    struct hw_groups groups;

    accounting_find_groups(path, &groups);
    limit = nearest(&groups, device);
    if (!limit)
        return HW_LIMIT_NOT_SUPPORTED;
    *state = (struct hw_limit_state){limit->soft_bytes, limit->hard_bytes, misc_used(limit)};
    return HW_LIMIT_DONE;
}

bool misc_allows(const struct hw_process *process, int device, uint64_t more_bytes)
{
    const struct hw_limit *limit = nearest(&process->groups, device);

    return !limit || limit->hard_bytes == HW_NO_HARD_LIMIT || misc_used(limit) + more_bytes <= limit->hard_bytes;
}
