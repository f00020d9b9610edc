/*
 * Whether the process that wrote a pid somewhere is still the one that has it.
 */
#ifndef HAMI_LIVENESS_H
#define HAMI_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/* The start time of a process that is there, when /proc does not tell more of it. */
#define HAMI_START_UNKNOWN UINT64_MAX

/*
 * Start time in clock ticks since boot (field 22 of /proc/<pid>/stat), or 0 when the process is gone: there is none, or it is a zombie
 * without other threads, which might still have its files and so its device memory. HAMI_START_UNKNOWN when this process can open no
 * more files, or may not see the entries of others (hidepid).
 */
uint64_t hami_start_ticks(int32_t pid);

/* Whether this process is in the host's own pid namespace, where the pid it sees is the pid NVML reports. */
bool hami_pid_is_host_pid(void);

#endif
