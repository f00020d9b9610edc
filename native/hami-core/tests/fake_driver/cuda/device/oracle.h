/*
 * What the fake driver knows exactly, for tests to compare with. Exported by libcuda.so.1; tests find it with dlsym.
 *
 * Devices are physical indices. A pid is what getpid() returns in the process; 0 means all processes. Times are CLOCK_MONOTONIC in
 * nanoseconds.
 */
#ifndef FAKE_ORACLE_H
#define FAKE_ORACLE_H

#include <stdint.h>

#include "hami/cuda_abi.h"

/*
 * Return the nanoseconds within [from_ns, to_ns) in which the device ran work of a process. The process may have ended; if it was
 * killed, its time counts until the last use of the device by anyone.
 */
uint64_t fake_truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns);

/* Return the bytes of the device that are taken, and how much of a process's is managed memory. Need no cuInit. */
uint64_t fake_truth_memory(int device, uint64_t pid);
uint64_t fake_truth_managed(int device, uint64_t pid);

/* Return the most bytes of the device that were taken at one time, by processes alive then. */
uint64_t fake_truth_memory_peak(int device);

/* Set the duration of later launches of the function. */
void fake_set_duration(CUfunction function, uint64_t duration_ns);

#endif
