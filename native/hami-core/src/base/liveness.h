/*
 * Whether a recorded process still runs.
 */
#ifndef HAMI_LIVENESS_H
#define HAMI_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/* The start time of a process that exists when /proc does not show it. */
#define HAMI_START_UNKNOWN UINT64_MAX

/*
 * Return the start time in clock ticks since boot (field 22 of /proc/<pid>/stat), or 0 if the process has ended. A zombie has ended
 * unless other threads of it run, because they may still hold its files and its device memory. Returns HAMI_START_UNKNOWN if this
 * process cannot open more files, or may not see the entries of other processes (hidepid).
 */
uint64_t hami_start_ticks(int32_t pid);

/* Return the same of this process, also if /proc shows the processes of another pid namespace, where its pid is another. */
uint64_t hami_own_start_ticks(void);

/* Whether this process is in the host's pid namespace, where getpid() returns the pid that NVML reports. */
bool hami_pid_is_host_pid(void);

#endif
