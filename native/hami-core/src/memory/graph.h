/*
 * Memory that graphs allocate: charged as a pool of the device (pool.h), and refused at the launch that would take it.
 *
 * The driver takes a graph's memory when its executable is first uploaded or launched, and keeps it afterwards. Costs one load
 * while no graph of the process allocates.
 */
#ifndef HAMI_GRAPH_H
#define HAMI_GRAPH_H

/* Note that a graph of this process allocates. From now on the driver's memory for graphs is charged. */
void hami_graph_allocates(void);

/* Forget the parent's graphs, in a forked child. */
void hami_graphs_forget(void);

#endif
