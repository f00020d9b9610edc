/*
 * What the driver says of the calling thread and its streams.
 *
 * The CUDA functions must have been loaded. Locks: none. Fork: nothing is kept.
 */
#ifndef HAMI_DRIVER_H
#define HAMI_DRIVER_H

#include <stdbool.h>

#include "hami/cuda_abi.h"

/* The current context; NULL when there is none. */
CUcontext hami_current_context(void);

/* Whether work on a stream is captured into a graph instead of executed. `is_per_thread`: stream 0 is the thread's own. */
bool hami_is_capturing(CUstream stream, bool is_per_thread);

/*
 * Allow this thread the calls that a capture in another thread forbids; returns the mode before, for hami_restore_capture_mode(). The
 * library's events are part of no capture.
 */
int hami_relax_capture_mode(void);
void hami_restore_capture_mode(int mode);

#endif
