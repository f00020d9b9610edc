/*
 * The scale of busy time: what the container's processes used by NVML's account, divided by what the timeline says.
 *
 * Pure: no clock, no device.
 */
#ifndef HAMI_SCALE_H
#define HAMI_SCALE_H

#include <stdint.h>

/* One, as a fixed-point number. */
#define HAMI_ONE 65536u

/* What was seen of a device so far; zero at the start. */
struct hami_scale {
    uint64_t used_ns, busy_ns; /* NVML's and the timeline's sums; old windows fade */
};

/* Add a window: what NVML and the timeline saw of it. Returns the scale: HAMI_ONE for equal sums, never 0. */
uint64_t hami_scale_add(struct hami_scale *scale, uint64_t used_ns, uint64_t busy_ns);

#endif
