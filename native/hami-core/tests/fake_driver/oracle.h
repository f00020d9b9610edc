/*
 * What the fake driver knows for certain, for tests to compare with. Exported by libcuda.so.1; reach it by dlsym.
 *
 * Devices are physical indices. A pid is what the process takes for its own; 0 stands for all processes. Times are CLOCK_MONOTONIC in
 * nanoseconds.
 */
#ifndef FAKE_ORACLE_H
#define FAKE_ORACLE_H

#include <stdint.h>

#include "hami/cuda_abi.h"

/* Nanoseconds within [from_ns, to_ns) in which the device ran work of the process, also of one that has ended; of one that was
 * killed, until anybody last used the device. */
uint64_t fake_truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns);

/* Bytes of the device that are taken; and how many of those that a process has are managed memory. These need no cuInit. */
uint64_t fake_truth_memory(int device, uint64_t pid);
uint64_t fake_truth_managed(int device, uint64_t pid);

/* The most bytes of the device that were ever taken at one moment, by all processes that lived then. */
uint64_t fake_truth_memory_peak(int device);

/* Make later launches of the function take this long. */
void fake_set_duration(CUfunction function, uint64_t duration_ns);

#endif
