/*
 * Limits in the files of the kernel's controller dmem, which NVML writes and the kernel holds.
 *
 * Source: Linux, kernel/cgroup/dmem.c; https://docs.nvidia.com/deploy/mps/ (memory limits).
 */
#include "hardware/accounting.h"

#include <stdio.h>

#define HARD "dmem.max"
#define SOFT "dmem.min"

static void name_region(int device, char region[64])
{
    const struct hw_device *gpu = hw_device(device);

    snprintf(region, 64, "nvidia/%08x:%02x:%02x.0/vidmem", gpu->pci_domain, gpu->pci_bus, gpu->pci_device);
}

/* The regions of a driver end with it, and so do their lines. One that was written before the present load is none. */
static bool is_old(const char *folder, int device)
{
    return accounting_is_old(accounting_pointer(folder, cgroup_of_folder(folder)), device);
}

static uint64_t read_line(const char *folder, const char *file, int device, uint64_t otherwise)
{
    char region[64];

    name_region(device, region);
    return is_old(folder, device) ? otherwise : cgroup_dmem_read(folder, file, region, otherwise);
}

static bool write_lines(const char *folder, int device, uint64_t soft_bytes, uint64_t hard_bytes)
{
    char region[64];

    name_region(device, region);
    return accounting_keep(accounting_pointer(folder, cgroup_of_folder(folder)), device) &&
           cgroup_dmem_write(folder, SOFT, region, soft_bytes) && cgroup_dmem_write(folder, HARD, region, hard_bytes);
}

static bool is_in(const struct hw_groups *groups, uint64_t number)
{
    for (int depth = 0; depth < CGROUP_DEPTH_MAX && groups->numbers[depth]; depth++)
        if (groups->numbers[depth] == number)
            return true;
    return false;
}

uint64_t dmem_used(uint64_t number, int device)
{
    uint64_t used = 0;

    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid && is_in(&hw_state->processes[position].groups, number))
            used += hw_charged(position, device);
    for (int index = 0; index < hw_state->blocks_end; index++)
        if (hw_is_passed_on(&hw_state->blocks[index], device) && is_in(&hw_state->blocks[index].groups, number))
            used += hw_state->blocks[index].bytes;
    return used;
}

uint64_t dmem_hard_limit_of(const char *folder, int device)
{
    return cgroup_has_dmem(folder) ? read_line(folder, HARD, device, HW_NO_HARD_LIMIT) : HW_NO_HARD_LIMIT;
}

/* NVML adds the change of a soft limit to each cgroup above, up to the first without the file. Removing a cgroup takes nothing back. */
static bool add_above(const char *path, int device, uint64_t change)
{
    char folder[PATH_MAX];

    snprintf(folder, sizeof(folder), "%s", path);
    while (change && cgroup_go_up(folder) && cgroup_has_dmem(folder))
        if (!write_lines(folder, device, read_line(folder, SOFT, device, 0) + change, dmem_hard_limit_of(folder, device)))
            return false;
    return true;
}

/* The kernel keeps the old limit without a word if more than the new one is used. */
enum hw_limit_result dmem_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes)
{
    uint64_t before;

    if (!cgroup_has_dmem(path))
        return HW_LIMIT_NOT_FOUND;
    before = read_line(path, SOFT, device, 0);
    if (hard_bytes < dmem_used(cgroup_of_folder(path), device))
        hard_bytes = dmem_hard_limit_of(path, device);
    return write_lines(path, device, soft_bytes, hard_bytes) && add_above(path, device, soft_bytes - before)
               ? HW_LIMIT_DONE
               : HW_LIMIT_NO_PERMISSION;
}

enum hw_limit_result dmem_get(int device, const char *path, struct hw_limit_state *state)
{
    if (!cgroup_has_dmem(path))
        return HW_LIMIT_NOT_SUPPORTED;
    *state = (struct hw_limit_state){read_line(path, SOFT, device, 0), dmem_hard_limit_of(path, device),
                                     dmem_used(cgroup_of_folder(path), device)};
    return HW_LIMIT_DONE;
}

/* The limit of every cgroup above holds too. */
bool dmem_allows(int device, uint64_t more_bytes)
{
    char folder[PATH_MAX];

    cgroup_own_folder(folder);
    do {
        uint64_t hard_bytes = dmem_hard_limit_of(folder, device);

        if (hard_bytes != HW_NO_HARD_LIMIT && dmem_used(cgroup_of_folder(folder), device) + more_bytes > hard_bytes)
            return false;
    } while (cgroup_go_up(folder));
    return true;
}
