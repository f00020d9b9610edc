/*
 * The driver's own NVML: load it, and let the driver limit the memory of a cgroup.
 */
#ifndef HAMI_LIMIT_HOOK_DRIVER_H
#define HAMI_LIMIT_HOOK_DRIVER_H

#include <stdbool.h>

/* The bytes of a limit that lets a cgroup have all that there is. */
#define HAMI_NO_LIMIT (~0ull)

struct hami_limit {
    const char *uuid;
    unsigned long long bytes; /* from 1 on */
};

/*
 * Set the hard limit of a cgroup on each device, and no soft one.
 *
 * driver_root  where the driver is installed; / searches the linker's folders too
 * folder       full path of the cgroup's folder
 * Returns      false if a limit could not be set; the reason has been written. Those of earlier devices then hold.
 * The driver may never return. Call it by hami_patience(), in which it names its steps.
 */
bool hami_driver_limit(const char *driver_root, const char *folder, const struct hami_limit *limits, int count);

#endif
