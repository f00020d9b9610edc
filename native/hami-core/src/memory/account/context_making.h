/*
 * Who makes a context, and what is held for it meanwhile.
 *
 * Held is what a context is expected to take (context_cost.h). If no process of the container has a context on the device or makes
 * one, one process makes one and holds what is left, and the others wait before they make theirs. The caller makes sure that a process
 * makes the contexts of one device one after the other.
 * Locks: the region's of a device's contexts, held while one of unknown cost is made. Fork: no state.
 */
#ifndef HAMI_CONTEXT_MAKING_H
#define HAMI_CONTEXT_MAKING_H

#include <stdbool.h>

#include "hami/cuda_abi.h"

/* How a context is made: `make` calls the driver, which returns it in `*context`. */
struct hami_context_maker {
    CUresult (*make)(const void *arguments);
    const void *arguments;
    CUcontext *context;
};

/*
 * Make a context on a region device: hold memory for it, call `make`, and charge what it took instead. Returns the driver's answer,
 * or CUDA_ERROR_OUT_OF_MEMORY without a call if it does not fit. `*is_within` is false if it took more than was held and passes the
 * limit: then destroy it and call hami_context_discharge().
 */
CUresult hami_context_make(int device, const struct hami_context_maker *maker, bool *is_within);

/* Discharge a context that has ended. */
void hami_context_discharge(CUcontext context);

/*
 * Wait before a charge is refused while another process makes the first context of a device: it holds all that is left until it
 * knows the cost. Only a process without a context there has to wait; otherwise the cost is known. Returns true if there may be more
 * room.
 */
bool hami_context_await_first(int device);

#endif
