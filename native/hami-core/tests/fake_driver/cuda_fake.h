/*
 * What the parts of the fake libcuda.so.1 share: contexts, and the way from an ordinal to the hardware.
 *
 * cuda_device.c owns initialisation, devices and contexts; cuda_memory.c allocations, cuda_copy.c copies; cuda_execution.c modules, streams,
 * events, launches and graphs; cuda_entry.c how a symbol is found by name and version.
 * Fork: as with the real driver, a child of an initialised process gets CUDA_ERROR_NOT_INITIALIZED from every call.
 */
#ifndef CUDA_FAKE_H
#define CUDA_FAKE_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hardware.h"

#define API __attribute__((visibility("default")))

/* Prototype and definition in one, for entries that the library under test has no need to know. */
#define EXTRA(name, ...)                \
    API CUresult name(__VA_ARGS__);     \
    CUresult name(__VA_ARGS__)

struct CUctx_st {
    int ordinal;
    int physical;
    bool is_primary;
    int references;
    uint64_t last_end_ns; /* when the last work queued in this context ends */
};

/* CUDA_SUCCESS once cuInit has succeeded in this very process. */
CUresult fake_check(void);

/* The calling thread's context, or CUDA_ERROR_INVALID_CONTEXT. */
CUresult fake_current(CUcontext *context);

/* The physical index behind a CUDA ordinal, or -1. */
int fake_physical(CUdevice device);

/* Give all of a context's memory back; called when it is destroyed. */
void fake_memory_forget(int ordinal);

/* Whether a range lies in the addresses handed out so far. */
bool fake_memory_is_addressable(CUdeviceptr pointer, size_t bytes);

#endif
