/*
 * The slow correction: what NVML says the container's processes used, against what the timeline says they were charged for.
 *
 * A span that the device shared with another container's work is longer than what its launches cost. NVML tells each process's part of
 * the last window; over some windows the ratio of the two is the price of a busy nanosecond of the timeline, which one process of the
 * container keeps up to date for all. The same process debits what NVML counted of a window beyond what was charged for it, over about
 * the next window: the price only foretells, the account is NVML's. Where NVML cannot be asked, or does not name the container's
 * processes because their host pids are not known, the price stays: then a container pays for the time that its neighbours take in
 * between, and gets less, never more.
 * No sample says nothing; one that names only others says that the container did next to nothing.
 * The first window that ends counts, taken for the longest that there is until the second tells how long they are.
 * Threads: the watcher's only. Fork: hami_nvml_scale_forget() in the child.
 */
#ifndef HAMI_NVML_SCALE_H
#define HAMI_NVML_SCALE_H

#include <stdint.h>

#include "meter.h"

/* Ask NVML about the devices with a limit, if it is time, and store the scale. */
void hami_nvml_scale_follow(const struct hami_limits *limits, uint64_t now_ns);

void hami_nvml_scale_forget(void);

#endif
