/*
 * What the graph modules share: a graph is its nodes in the order they were added.
 *
 * graph.c owns graphs that are built by hand, capture.c those that are captured, graph_launch.c running them.
 *
 * A node depends only on earlier ones. Handles that are not nodes of the graph are ignored in dependencies. A graph knows which
 * nodes are memory nodes; graph_memory.c owns what they do. The numbers of kinds are those of CUgraphNodeType.
 */
#ifndef CUDA_GRAPH_H
#define CUDA_GRAPH_H

#include "cuda/execution/execution.h"

enum fake_node_kind {
    FAKE_NODE_KERNEL,
    FAKE_NODE_COPY,
    FAKE_NODE_SET,
    FAKE_NODE_HOST,
    FAKE_NODE_GRAPH,
    FAKE_NODE_EMPTY,
    FAKE_NODE_MEM_ALLOC = 10,
    FAKE_NODE_MEM_FREE = 11
};

/* CUDA_KERNEL_NODE_PARAMS; the first version ends before `kernel`. */
struct fake_kernel_params {
    CUfunction function;
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
    void **params, **extra;
    void *kernel;
    CUcontext context;
};

struct CUgraphNode_st {
    enum fake_node_kind kind;
    struct fake_kernel_params params; /* FAKE_NODE_KERNEL */
    struct fake_step call;            /* FAKE_NODE_HOST */
    CUgraph child;                    /* FAKE_NODE_GRAPH: the node's own copy */
    CUDA_MEM_ALLOC_NODE_PARAMS taken; /* FAKE_NODE_MEM_ALLOC */
    size_t *dependencies;             /* positions in the graph */
    size_t dependency_count;
    CUgraphNode original; /* of a copied node */
};

struct CUgraph_st {
    CUgraphNode *nodes;
    size_t count, room;
    struct fake_graph_memory *memory;
};

/* Add a copy of `node` after others. */
CUresult fake_graph_add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        const struct CUgraphNode_st *node);

/* Return the parameters that the first version of the kernel node calls was given. */
struct fake_kernel_params fake_kernel_params_first(const void *params);

/* Copy a graph, or return NULL. Each node of the copy refers to its original. */
CUgraph fake_graph_copy(CUgraph graph);

#endif
