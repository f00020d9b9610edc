#include "scale.h"

/* What a scale of one is believed to begin with: a window of a container with a small share. */
#define PRIOR_NS 10000000u

/* The busy time that is remembered: windows that round to whole percents, and edges that fall into the next window, even out. */
#define MEMORY_NS 300000000u

/* With sixteen tenants on a device, a span is sixteen times as long as its work; NVML counts more than the timeline only by rounding. */
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
