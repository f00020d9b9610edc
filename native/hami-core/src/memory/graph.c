#include "graph.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "account.h"
#include "devices.h"
#include "hooks.h"
#include "limiter.h"
#include "pool.h"

enum { DEPTH_MAX = 8 };

static _Atomic bool is_any;

void hami_graph_allocates(void)
{
    if (atomic_load(&is_any))
        return;
    for (CUdevice ordinal = 0; hami_device_of_ordinal(ordinal) >= 0; ordinal++)
        hami_pool_know(HAMI_POOL_OF_GRAPHS(ordinal), hami_device_of_ordinal(ordinal));
    atomic_store(&is_any, true);
}

void hami_graphs_forget(void)
{
    atomic_store(&is_any, false);
}

/* Add up what the allocations of a graph take. The sum is a charge whose owner is the pool of the first allocation's device. */
static void add_node(CUgraphNode node, struct hami_charge *sum, int depth);

static void add_nodes(CUgraph graph, struct hami_charge *sum, int depth)
{
    CUgraphNode *nodes;
    size_t count = 0;

    if (HAMI_INSIDE(hami_real.cuGraphGetNodes(graph, NULL, &count)) != CUDA_SUCCESS || !count)
        return;
    nodes = malloc(count * sizeof(*nodes));
    if (nodes && HAMI_INSIDE(hami_real.cuGraphGetNodes(graph, nodes, &count)) == CUDA_SUCCESS)
        for (size_t index = 0; index < count; index++)
            add_node(nodes[index], sum, depth);
    free(nodes);
}

static void add_node(CUgraphNode node, struct hami_charge *sum, int depth)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params;
    CUgraph child;
    CUgraphNodeType type;

    if (HAMI_INSIDE(hami_real.cuGraphNodeGetType(node, &type)) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth > 0 &&
        HAMI_INSIDE(hami_real.cuGraphChildGraphNodeGetGraph(node, &child)) == CUDA_SUCCESS)
        add_nodes(child, sum, depth - 1);
    if (type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || HAMI_INSIDE(hami_real.cuGraphMemAllocNodeGetParams(node, &params)) != CUDA_SUCCESS)
        return;
    if (!sum->owner)
        sum->owner = HAMI_POOL_OF_GRAPHS(params.poolProps.location.id);
    sum->bytes += params.bytesize;
}

/* Note what an executable allocates when it is made. `owner` is the pool that the memory will come from. */
static CUresult note(CUresult result, const CUgraphExec *executable, CUgraph graph)
{
    struct hami_charge charge = {.bytes = 0}, replaced;
    int device;

    if (result != CUDA_SUCCESS || hami_inside || !atomic_load_explicit(&is_any, memory_order_relaxed))
        return result;
    add_nodes(graph, &charge, DEPTH_MAX);
    device = charge.owner ? hami_device_of_ordinal((CUdevice)(charge.owner - HAMI_POOL_OF_GRAPHS(0))) : -1;
    if (device < 0)
        return result;
    charge.key = (uint64_t)(uintptr_t)*executable;
    charge.device = (int16_t)device;
    hami_charges_put(&hami_graphs, charge, &replaced);
    return result;
}

/* A launch or an upload of an executable with one of the driver's functions. */
struct run {
    CUgraphExec executable;
    CUstream stream;
    CUresult (*real)(CUgraphExec, CUstream);
};

static CUresult call_driver(const void *arguments)
{
    const struct run *run = arguments;

    return run->real(run->executable, run->stream);
}

/* Launch or upload an executable. Returns CUDA_ERROR_OUT_OF_MEMORY if what it allocates does not fit. */
static CUresult run(const struct run *run)
{
    struct hami_charge known;
    CUresult result;

    if (__builtin_expect(!atomic_load_explicit(&is_any, memory_order_relaxed), 1) || hami_inside ||
        !hami_charges_find(&hami_graphs, (uint64_t)(uintptr_t)run->executable, &known)) {
        result = call_driver(run);
        hami_pools_refresh();
        return result;
    }
    HAMI_CHANGING(known.device);
    hami_memory_grow_pool(known.owner, known.bytes, call_driver, run, &result);
    return result;
}

static CUresult launch(const struct run *executable, bool is_per_thread)
{
    const struct hami_launch launch = {executable->stream, is_per_thread, executable->executable, 0, 0};
    struct hami_timed_launch timed;
    CUresult result;

    hami_limiter_enter(&launch, &timed);
    result = run(executable);
    if (__builtin_expect(timed.from != NULL, 0))
        hami_limiter_leave(&timed, result);
    return result;
}

HAMI_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    return launch(&(struct run){executable, stream, HAMI_REAL_CUDA(cuGraphLaunch)}, false);
}

HAMI_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return launch(&(struct run){executable, stream, HAMI_REAL_CUDA(cuGraphLaunch_ptsz)}, true);
}

HAMI_EXPORT CUresult cuGraphInstantiate(CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes)
{
    return note(HAMI_REAL_CUDA(cuGraphInstantiate)(executable, graph, failed, log, log_bytes), executable, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiate_v2(CUgraphExec *executable, CUgraph graph, CUgraphNode *failed, char *log, size_t log_bytes)
{
    return note(HAMI_REAL_CUDA(cuGraphInstantiate_v2)(executable, graph, failed, log, log_bytes), executable, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    return note(HAMI_REAL_CUDA(cuGraphInstantiateWithFlags)(executable, graph, flags), executable, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams(CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return note(HAMI_REAL_CUDA(cuGraphInstantiateWithParams)(executable, graph, params), executable, graph);
}

HAMI_EXPORT CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *executable, CUgraph graph,
                                                       CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return note(HAMI_REAL_CUDA(cuGraphInstantiateWithParams_ptsz)(executable, graph, params), executable, graph);
}

HAMI_EXPORT CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    struct hami_charge taken;
    CUresult result;

    if (!hami_inside && executable)
        hami_charges_take(&hami_graphs, (uint64_t)(uintptr_t)executable, &taken);
    result = HAMI_INSIDE(HAMI_REAL_CUDA(cuGraphExecDestroy)(executable));
    hami_pools_refresh();
    return result;
}

HAMI_EXPORT CUresult cuGraphUpload(CUgraphExec executable, CUstream stream)
{
    return run(&(struct run){executable, stream, HAMI_REAL_CUDA(cuGraphUpload)});
}

HAMI_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec executable, CUstream stream)
{
    return run(&(struct run){executable, stream, HAMI_REAL_CUDA(cuGraphUpload_ptsz)});
}

HAMI_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                            CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    hami_graph_allocates();
    return HAMI_REAL_CUDA(cuGraphAddMemAllocNode)(node, graph, dependencies, count, params);
}

static void note_node(const CUgraphNodeParams *params)
{
    if (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        hami_graph_allocates();
}

HAMI_EXPORT CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                    CUgraphNodeParams *params)
{
    note_node(params);
    return HAMI_REAL_CUDA(cuGraphAddNode)(node, graph, dependencies, count, params);
}

HAMI_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    note_node(params);
    return HAMI_REAL_CUDA(cuGraphAddNode_v2)(node, graph, dependencies, edges, count, params);
}

HAMI_EXPORT CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies,
                                       const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
{
    note_node(params);
    return HAMI_REAL_CUDA(cuGraphAddNode_v3)(node, graph, dependencies, edges, count, params);
}
