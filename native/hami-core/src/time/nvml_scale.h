/*
 * The slow correction: what NVML says the container's processes used, compared with what they were charged.
 *
 * An interval in which the device also ran another container's work is longer than its launches cost. NVML reports each process's
 * share of the last window. The ratio of the two, over several windows, is the scale: the cost of a busy nanosecond of the
 * timeline. One process of the container keeps it up to date for all. It also debits what NVML counted in a window beyond the
 * charges, over about the next window. So the scale is a forecast, and NVML's account is what counts in the end.
 * If NVML cannot be asked, or does not name the container's processes because their host pids are unknown, the scale stays as it
 * is. Then the container also pays for its neighbours' time slices and gets less than its limit, never more. No sample means
 * nothing. A sample that names only other processes means that the container did almost nothing.
 * Threads: the watcher only. Fork: call hami_nvml_scale_forget() in the child.
 */
#ifndef HAMI_NVML_SCALE_H
#define HAMI_NVML_SCALE_H

#include <stdint.h>

#include "meter.h"

/* Ask NVML about the limited devices when it is time, and store the scale. */
void hami_nvml_scale_follow(const struct hami_limits *limits, uint64_t now_ns);

void hami_nvml_scale_forget(void);

#endif
