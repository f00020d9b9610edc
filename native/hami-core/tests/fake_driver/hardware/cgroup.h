/*
 * Control groups: which one a process is in, which a folder is, and the files of the controller dmem. Only cgroup v2.
 *
 * Owns the variables FAKE_DRIVER_CGROUP_ROOT, a folder that stands for /sys/fs/cgroup, and FAKE_DRIVER_CGROUP, which stands for the
 * path in /proc/self/cgroup. A folder is a cgroup if it has a file `cgroup.controllers`, as each has in version 2 and none in
 * version 1. Every cgroup but the root of all has a file `cgroup.type`.
 *
 * A cgroup has a number, which is the same seen from every mount and cgroup namespace, and is never reused.
 */
#ifndef FAKE_CGROUP_H
#define FAKE_CGROUP_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_DEPTH_MAX = 16 };

/* Whether this node has cgroup v2. */
bool cgroup_is_supported(void);

/* Write where this process sees cgroups, and the folder of its own. */
void cgroup_root_folder(char folder[PATH_MAX]);
void cgroup_own_folder(char folder[PATH_MAX]);

/* Whether a folder is the root of all cgroups, which a process in a cgroup namespace never sees. */
bool cgroup_is_root(const char *folder);

/* Change a folder to the one above it. Returns false if that is no cgroup. */
bool cgroup_go_up(char folder[PATH_MAX]);

/* Return the number of the cgroup of a folder; 0 if it cannot be opened or is none. */
uint64_t cgroup_of_folder(const char *path);

/* Whether a folder has a controller: its own file `cgroup.controllers` says so, or in a stand-in the cgroup above enables it. */
bool cgroup_has(const char *folder, const char *controller);

/* Whether a folder has the files of the controller dmem, which the root has never. In a stand-in this function makes them. */
bool cgroup_has_dmem(const char *folder);

/* Read the line of a region from `dmem.max` or another file; `otherwise` if there is none, and UINT64_MAX for `max`. */
uint64_t cgroup_dmem_read(const char *folder, const char *file, const char *region, uint64_t otherwise);

/* Replace the line of a region. Returns false if the file cannot be written. */
bool cgroup_dmem_write(const char *folder, const char *file, const char *region, uint64_t value);

#endif
