/*
 * What the parts of the fake libcuda.so.1 share: contexts, and the way from an ordinal to the hardware.
 *
 * cuda_device.c owns initialisation and devices, cuda_context.c contexts; cuda_memory.h's modules allocations, cuda_copy.c copies;
 * cuda_execution.h's modules what is run; cuda_entry.c how a symbol is found by name and version.
 * Fork: as with the real driver, a child of an initialised process gets CUDA_ERROR_NOT_INITIALIZED from every call.
 */
#ifndef CUDA_FAKE_H
#define CUDA_FAKE_H

#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hardware.h"

#define API __attribute__((visibility("default")))

/* What tests find by dlsym: the truth, which no driver tells. */
#define ORACLE __attribute__((visibility("default")))

/* Prototype and definition in one, for entries that the library under test has no need to know. */
#define EXTRA(name, ...)            \
    API CUresult name(__VA_ARGS__); \
    CUresult name(__VA_ARGS__)

struct CUctx_st {
    int ordinal;
    int physical;
    bool is_primary;
    int references;
    unsigned int flags;
    uint64_t module_bytes; /* what its modules cost */
    uint64_t set_aside_bytes[3]; /* by CUlimit, beyond what a new context has */
    struct fake_execution *execution; /* cuda_execution.h; made at the first use */
};

/* CUDA_SUCCESS once cuInit has succeeded in this very process. */
CUresult fake_check(void);

/* CUDA_SUCCESS for a device of this process and somewhere to write the answer. */
CUresult fake_check_device(CUdevice device, const void *output);

/* Make ready the primary context of an ordinal. */
void fake_context_prepare(int ordinal, int physical);

/* The calling thread's context, or CUDA_ERROR_INVALID_CONTEXT. */
CUresult fake_current(CUcontext *context);

/* The physical index behind a CUDA ordinal, or -1. */
int fake_physical(CUdevice device);

/* The other way round. */
int fake_ordinal(int physical);

/* A number from the environment. */
uint64_t fake_setting(const char *name, uint64_t otherwise);

/* Give all of a context's memory back; called when it is destroyed. */
void fake_memory_forget(CUcontext context);

/* Drop a context's work; called when it is destroyed. */
void fake_execution_forget(CUcontext context);

/* The memory that a module costs in its context: FAKE_DRIVER_MODULE_KIB. */
CUresult fake_module_take(CUcontext context);
void fake_module_give(CUcontext context);

/* What every synchronisation does to the pools: give back what they hold beyond their release thresholds. */
void fake_pools_settle(void);

/*
 * The memory nodes of a graph, in the order they were added. A graph keeps the pointer, an executable graph one to a copy; NULL is
 * none. Launching takes and frees the memory; CUDA_ERROR_INVALID_VALUE where a node's memory of an earlier launch is not freed yet,
 * unless that is to be done first.
 */
struct fake_graph_memory;
struct fake_graph_memory *fake_graph_memory_copy(const struct fake_graph_memory *memory);
CUresult fake_graph_memory_launch(struct fake_graph_memory *memory, bool is_freed_first);
void fake_graph_memory_drop(struct fake_graph_memory *memory);

/* From cuda_graph.c and cuda_capture.c: where a graph keeps its memory nodes, and the graph that a stream is captured into, or NULL. */
struct fake_graph_memory **fake_graph_memory_of(CUgraph graph);
CUgraph fake_capture_of(CUstream stream);

/* Whether a range lies in the addresses handed out so far. */
bool fake_memory_is_addressable(CUdeviceptr pointer, size_t bytes);

#endif
