/*
 * The thread that asks the device what became of the launches.
 *
 * It exists from the first launch under a limit until no launch came for a while, and does three things: it charges what the device did
 * (meter.h), compares that with NVML (nvml_scale.h), and tells the monitor in the process's slot. It takes no signals and holds no lock
 * while it sleeps. Fork: the child has none; hami_watcher_forget() there, and its first launch starts its own.
 */
#ifndef HAMI_WATCHER_H
#define HAMI_WATCHER_H

#include "meter.h"

/* Read the limits that hold now. */
typedef void hami_read_limits(struct hami_limits *limits);

/* A launch was made or waits: see that the thread runs. Cheap when it does. It reads the limits each time it looks. */
void hami_watcher_wake(hami_read_limits *read_limits);

void hami_watcher_forget(void);

#endif
