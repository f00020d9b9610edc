/*
 * Memory that graphs allocate: charged as a pool of the device's (pool.h), and refused at the launch that would take it.
 *
 * The driver takes a graph's memory when its executable is first uploaded or launched, and keeps it afterwards. Costs a load while the
 * process has no graph that allocates.
 */
#ifndef HAMI_GRAPH_H
#define HAMI_GRAPH_H

/* Some graph of this process allocates memory: from now on what the driver keeps for graphs is charged. */
void hami_graph_allocates(void);

/* Forget the parent's graphs, in a forked child. */
void hami_graphs_forget(void);

#endif
