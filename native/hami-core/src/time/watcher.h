/*
 * The thread that asks the device which launches have finished.
 *
 * It runs from the first launch under a limit until a second after the last. It charges what the device did (meter.h), compares
 * that with NVML (nvml_scale.h), and writes the use for the monitor to the process's slot. It handles no signals and holds no lock
 * while it sleeps.
 * Fork: call hami_watcher_forget() in the child; its first launch starts its own thread.
 */
#ifndef HAMI_WATCHER_H
#define HAMI_WATCHER_H

#include "meter.h"

/* Fill in the limits that hold now. */
typedef void hami_read_limits(struct hami_limits *limits);

/*
 * Make sure that the thread runs, because a launch was made or waits. Cheap if it runs. The thread calls `read_limits` each time it
 * looks.
 */
void hami_watcher_wake(hami_read_limits *read_limits);

void hami_watcher_forget(void);

#endif
