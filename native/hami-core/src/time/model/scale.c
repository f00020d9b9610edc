#include "scale.h"

/* The weight of the initial scale of one: a window of a container with a small share. */
#define PRIOR_NS 10000000u

/* How much busy time is remembered: enough to average windows in whole percent, and work that falls into the next window. */
#define MEMORY_NS 300000000u

/*
 * With sixteen containers on a device, an interval is sixteen times as long as its work. NVML counts more than the timeline only by
 * rounding.
 */
#define SCALE_MIN (HAMI_ONE / 16)
#define SCALE_MAX (HAMI_ONE * 5 / 4)

uint64_t hami_scale_add(struct hami_scale *scale, uint64_t used_ns, uint64_t busy_ns)
{
    uint64_t value;

    if (!scale->busy_ns)
        scale->used_ns = scale->busy_ns = PRIOR_NS;
    if (scale->busy_ns > MEMORY_NS) {
        scale->used_ns /= 2;
        scale->busy_ns /= 2;
    }
    scale->used_ns += used_ns;
    scale->busy_ns += busy_ns;
    value = scale->used_ns * HAMI_ONE / scale->busy_ns;
    return value < SCALE_MIN ? SCALE_MIN : value > SCALE_MAX ? SCALE_MAX : value;
}
