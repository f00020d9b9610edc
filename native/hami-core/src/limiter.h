/*
 * What happens before work reaches the device.
 *
 * Every launch entry passes one gate. It tells the monitor that the container is active (`recent_kernel`, `last_kernel_time`) and
 * waits while the monitor holds the container back for one of higher priority (`recent_kernel` below 0). It measures and limits no GPU
 * time. An open gate costs a load and a read of the clock's seconds; it writes shared memory only when there is news.
 */
#ifndef HAMI_LIMITER_H
#define HAMI_LIMITER_H

#include <stdbool.h>

#include "hami/cuda_abi.h"

/* Pass the gate before a launch on `stream`; work being captured into a graph never waits. */
void hami_limiter_pass(CUstream stream, bool is_per_thread);

#endif
