/*
 * Limits on memory that the driver holds for a cgroup, as NVML's nvmlDeviceSetMemoryLimits_v1 sets them.
 *
 * One of two parts holds them, which is decided when the driver is loaded: the kernel's controller dmem, whose files have them
 * (dmem.c), or the driver's own accounting, which knows the cgroups with the controller misc (misc.c). ../README.md has what differs,
 * with its source. A process is charged to the cgroup in which it first took memory. Managed memory is not counted, and memory that
 * another process made stays charged to that one's cgroup.
 */
#ifndef FAKE_LIMITS_H
#define FAKE_LIMITS_H

#include "hardware/hardware.h"

#define HW_NO_HARD_LIMIT UINT64_MAX

enum hw_memacct { HW_MEMACCT_NONE, HW_MEMACCT_MISC, HW_MEMACCT_DMEM };

enum hw_limit_result {
    HW_LIMIT_DONE,
    HW_LIMIT_NO_CGROUP,
    HW_LIMIT_NOT_SUPPORTED,
    HW_LIMIT_NOT_FOUND,
    HW_LIMIT_NO_PERMISSION,
    HW_LIMIT_BELOW_USE,
    HW_LIMIT_TOO_MANY,
};

struct hw_limit_state {
    uint64_t soft_bytes, hard_bytes, used_bytes;
};

/* Return what holds limits on this node. */
enum hw_memacct hw_memacct(void);

/* Set the limits of a device for the cgroup of a folder. */
enum hw_limit_result hw_limit_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes);

/* Read the limits that hold for the cgroup of a folder, and how much is charged to them. */
enum hw_limit_result hw_limit_get(int device, const char *path, struct hw_limit_state *state);

/*
 * What this process sees of a device's memory: all of it, or if its own cgroup has a hard limit only that. A limit of a cgroup above
 * changes nothing here.
 */
void hw_memory_seen(int device, uint64_t *total_bytes, uint64_t *used_bytes);

/* Limit what this process itself takes of a device, as MPS does. What it sees as free is less, the total is not. 0 is no limit. */
void hw_limit_self(int device, uint64_t bytes);

#endif
