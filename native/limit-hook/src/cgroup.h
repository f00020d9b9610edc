/*
 * The control group of a container: the leaf of version 2 that has its first process.
 */
#ifndef HAMI_LIMIT_HOOK_CGROUP_H
#define HAMI_LIMIT_HOOK_CGROUP_H

#include <limits.h>
#include <stdbool.h>

/*
 * Write the full path of the folder of the process's cgroup.
 *
 * proc, root  where the kernel has its processes and its cgroups, /proc and /sys/fs/cgroup
 * Returns     false if there is none of version 2, or it is the root; the reason has been written.
 */
bool hami_cgroup_folder(int pid, const char *proc, const char *root, char folder[PATH_MAX]);

/*
 * Let the driver account for the cgroup of a folder: enable in each cgroup above those of the controllers dmem and misc that the
 * kernel has. runc does that for its containers, crun leaves dmem out.
 *
 * Returns false if one cannot be enabled; the reason has been written.
 */
bool hami_cgroup_enable_accounting(const char *root, const char *folder);

#endif
