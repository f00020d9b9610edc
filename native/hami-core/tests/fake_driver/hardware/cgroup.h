/*
 * Control groups: which one a process is in, and which a folder is. Only cgroup v2.
 *
 * Owns the variables FAKE_DRIVER_CGROUP_ROOT, a folder that stands for /sys/fs/cgroup, and FAKE_DRIVER_CGROUP, which stands for the
 * path in /proc/self/cgroup. A folder is a cgroup if it has a file `cgroup.controllers`, as each has in version 2 and none in
 * version 1.
 *
 * A cgroup has a number, which is the same seen from every mount and cgroup namespace, and is never reused.
 */
#ifndef FAKE_CGROUP_H
#define FAKE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_DEPTH_MAX = 16 };

/* Whether this node has cgroup v2. */
bool cgroup_is_supported(void);

/* Return the number of the cgroup of a folder; 0 if it cannot be opened or is none. */
uint64_t cgroup_of_folder(const char *path);

/* Write the numbers of this process's cgroup and of those above it, the leaf first. The rest is 0. */
void cgroup_of_process(uint64_t numbers[CGROUP_DEPTH_MAX]);

#endif
