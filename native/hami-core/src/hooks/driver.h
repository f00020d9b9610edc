/*
 * What the driver says about the calling thread and its streams.
 *
 * The CUDA functions must be loaded. Locks: none. Fork: no state.
 */
#ifndef HAMI_DRIVER_H
#define HAMI_DRIVER_H

#include <stdbool.h>

#include "hami/cuda_abi.h"

/* Return the current context, or NULL if there is none. */
CUcontext hami_current_context(void);

/* Whether work on a stream is captured into a graph instead of executed. `is_per_thread`: stream 0 is the thread's own. */
bool hami_is_capturing(CUstream stream, bool is_per_thread);

/*
 * Allow this thread the calls that a capture in another thread forbids. This is safe because the library's events are part of no
 * capture. Returns the previous mode for hami_restore_capture_mode().
 */
int hami_relax_capture_mode(void);
void hami_restore_capture_mode(int mode);

#endif
