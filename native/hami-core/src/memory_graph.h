/*
 * Memory that graphs allocate: charged as a pool of the device's (memory_pool.h), and refused at the launch that would take it.
 *
 * The driver takes a graph's memory when its executable is first uploaded or launched and keeps it afterwards. Whoever launches asks
 * hami_graph_begin() first and tells hami_graph_end() afterwards. Costs a load while the process has no graph that allocates.
 */
#ifndef HAMI_MEMORY_GRAPH_H
#define HAMI_MEMORY_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

struct hami_graph_memory {
    uint64_t pool, growth;
};

/* Some graph of this process allocates memory. */
void hami_graph_allocates(void);

/* Reserve what an executable graph may take. CUDA_ERROR_OUT_OF_MEMORY: do not launch, and do not call hami_graph_end(). */
CUresult hami_graph_begin(CUgraphExec executable, struct hami_graph_memory *memory);
void hami_graph_end(const struct hami_graph_memory *memory);

#endif
