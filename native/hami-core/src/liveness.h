/*
 * Whether the process that wrote a pid somewhere is still the one that has it.
 */
#ifndef HAMI_LIVENESS_H
#define HAMI_LIVENESS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Start time in clock ticks since boot (field 22 of /proc/<pid>/stat), or 0 when the process is gone: it has no entry, or is a zombie
 * without other threads, which might still have its files and so its device memory.
 */
uint64_t hami_start_ticks(int32_t pid);

/* Whether this process is in the host's own pid namespace, where the pid it sees is the pid NVML reports. */
bool hami_pid_is_host_pid(void);

#endif
