/*
 * Memory that graphs allocate: charged as a pool of the device's (memory_pool.h), and refused at the launch that would take it.
 *
 * The driver takes a graph's memory when its executable is first uploaded or launched, and keeps it afterwards. Costs a load while the
 * process has no graph that allocates.
 */
#ifndef HAMI_MEMORY_GRAPH_H
#define HAMI_MEMORY_GRAPH_H

#include "hami/cuda_abi.h"

/* Some graph of this process allocates memory: from now on what the driver keeps for graphs is charged. */
void hami_graph_allocates(void);

/* Forget the parent's graphs, in a forked child. */
void hami_graph_forget(void);

/* Launch or upload an executable as `run` does, unless what it allocates does not fit: then CUDA_ERROR_OUT_OF_MEMORY. */
CUresult hami_graph_run(CUgraphExec executable, CUstream stream, CUresult (*run)(CUgraphExec, CUstream));

#endif
