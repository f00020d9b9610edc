/*
 * Limits on memory that the driver holds for a cgroup, as NVML's nvmlDeviceSetMemoryLimits_v1 sets them.
 *
 * A process is charged to the cgroup in which it first took memory, and to all above it. A limit holds for what the living processes
 * of its cgroup have on the device, without managed memory. It ends with its cgroup, and when the driver is unloaded.
 */
#ifndef FAKE_LIMITS_H
#define FAKE_LIMITS_H

#include "hardware/hardware.h"

#define HW_NO_HARD_LIMIT UINT64_MAX

struct hw_limit_state {
    uint64_t soft_bytes, hard_bytes, used_bytes;
};

/* Set the limits of a device for a cgroup. Returns false if there are too many. */
bool hw_limit_set(int device, uint64_t cgroup, const char *path, uint64_t soft_bytes, uint64_t hard_bytes);

/* Read what was set for a cgroup, and how much it has. Returns false if nothing was set. */
bool hw_limit_get(int device, uint64_t cgroup, struct hw_limit_state *state);

/*
 * What this process sees of a device's memory: all of it, or if its own cgroup has a hard limit only that. A limit of a cgroup above
 * changes nothing here.
 */
void hw_memory_seen(int device, uint64_t *total_bytes, uint64_t *used_bytes);

#endif
