/*
 * What the parts of the fake libcuda.so.1 share: contexts, and the way from an ordinal to the hardware.
 *
 * device/device.c owns initialisation and devices, device/context.c contexts, device/entry.c the lookup of symbols by name and
 * version; `memory` owns allocations and copies, `execution` what runs.
 * Fork: like the real driver, a child of an initialised process gets CUDA_ERROR_NOT_INITIALIZED from every call.
 */
#ifndef CUDA_FAKE_H
#define CUDA_FAKE_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hardware/hardware.h"

#define API __attribute__((visibility("default")))

/* Exported for tests, which find it with dlsym. */
#define ORACLE __attribute__((visibility("default")))

/* Prototype and definition in one, for functions that the library under test does not use. */
#define EXTRA(name, ...)            \
    API CUresult name(__VA_ARGS__); \
    CUresult name(__VA_ARGS__)

struct CUctx_st {
    int ordinal;
    int physical;
    bool is_primary;
    _Atomic bool is_destroyed;
    int references;
    unsigned int flags;
    uint64_t module_bytes; /* taken by its modules */
    uint64_t set_aside_bytes[3]; /* by CUlimit, in addition to a new context's */
    struct fake_execution *execution; /* execution/execution.h; made at the first use */
};

/* CUDA_SUCCESS once cuInit has succeeded in this process, not in its parent. */
CUresult fake_check(void);

/* CUDA_SUCCESS for a device of this process and a pointer that is not NULL. */
CUresult fake_check_device(CUdevice device, const void *output);

/* Make the primary context of an ordinal. */
void fake_context_prepare(int ordinal, int physical);

/* Make the default pool and the graphs' pool of an ordinal. */
void fake_pools_prepare(int ordinal);

/* Return the calling thread's context, or CUDA_ERROR_INVALID_CONTEXT. */
CUresult fake_current(CUcontext *context);

/* Return the physical index of a CUDA ordinal, or -1. */
int fake_physical(CUdevice device);

/* Return the CUDA ordinal of a physical index, or -1. */
int fake_ordinal(int physical);

/* Return a number from the environment. */
uint64_t fake_setting(const char *name, uint64_t otherwise);

/* Free all memory of a context when it is destroyed. */
void fake_memory_forget(CUcontext context);

/* Drop a context's work when it is destroyed. */
void fake_execution_forget(CUcontext context);

/* Return the memory that a module takes in its context: FAKE_DRIVER_MODULE_KIB. */
CUresult fake_module_take(CUcontext context);
void fake_module_give(CUcontext context);

/* Done by every synchronisation: pools give back what they hold beyond their release thresholds. */
void fake_pools_settle(void);

/*
 * The memory nodes of a graph in the order they were added. A graph keeps the pointer, and an executable graph one to a copy; NULL
 * is none. A launch allocates and frees the memory. It returns CUDA_ERROR_INVALID_VALUE if a node's memory of an earlier launch is
 * not freed yet, unless the launch is told to free it first.
 */
struct fake_graph_memory;
struct fake_graph_memory *fake_graph_memory_copy(const struct fake_graph_memory *memory);
CUresult fake_graph_memory_launch(struct fake_graph_memory *memory, bool is_freed_first);
void fake_graph_memory_drop(struct fake_graph_memory *memory);

/* Return where a graph keeps its memory nodes (execution/graph.c). */
struct fake_graph_memory **fake_graph_memory_of(CUgraph graph);

/*
 * Return the graph that a stream is captured into, or NULL (execution/capture.c). Nobody else uses it until fake_capture_leave(),
 * which is not called after NULL.
 */
CUgraph fake_capture_enter(CUstream stream);
void fake_capture_leave(void);

/* Whether a range is within the addresses allocated so far. */
bool fake_memory_is_addressable(CUdeviceptr pointer, size_t bytes);

#endif
