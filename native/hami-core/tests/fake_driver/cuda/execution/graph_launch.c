/*
 * Executable graphs of the fake driver: making, changing and launching them.
 *
 * An executable graph runs for as long as its kernels need on an idle device: one after another where they depend on each other or
 * fill it, side by side where they fit. To its stream it is one piece of work that takes the whole device. Host nodes run after it.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/execution/graph.h"

struct CUgraphExec_st {
    CUgraph graph;
    struct fake_graph_memory *memory;
    bool is_freed_first;
    bool is_steady; /* every launch takes duration_ns */
    uint64_t duration_ns;
};

struct CUDA_GRAPH_INSTANTIATE_PARAMS_st {
    cuuint64_t flags;
    CUstream upload_stream;
    CUgraphNode error_node;
    int result;
};

/* CUgraphExecUpdateResultInfo */
struct update_result {
    int result;
    CUgraphNode error_node, error_from_node;
};

enum { UPDATE_SUCCESS = 0, UPDATE_TOPOLOGY_CHANGED = 2, UPDATE_NODE_TYPE_CHANGED = 3 };

/* How long a graph takes */

static bool draw(CUgraph graph, uint64_t *duration_ns, bool *is_steady);

static bool draw_node(const struct CUgraphNode_st *node, uint64_t *duration_ns, unsigned int *part, bool *is_steady)
{
    *duration_ns = 0;
    *part = PROFILE_WHOLE;
    if (node->kind == FAKE_NODE_GRAPH)
        return draw(node->child, duration_ns, is_steady);
    if (node->kind == FAKE_NODE_KERNEL) {
        *duration_ns = fake_kernel_draw(node->params.function);
        *part = fake_kernel_part(node->params.function);
        *is_steady = *is_steady && fake_kernel_is_steady(node->params.function);
    }
    return true;
}

/* Place the nodes on an idle device. Clears is_steady if another launch may take another time. */
static bool draw(CUgraph graph, uint64_t *duration_ns, bool *is_steady)
{
    uint64_t *ends = calloc(graph->count + 1, sizeof(*ends));
    struct profile profile = {0};
    bool is_placed = ends != NULL;

    *duration_ns = 0;
    for (size_t index = 0; is_placed && index < graph->count; index++) {
        const struct CUgraphNode_st *node = graph->nodes[index];
        uint64_t earliest = 0, node_ns;
        unsigned int part;

        for (size_t number = 0; number < node->dependency_count; number++)
            if (ends[node->dependencies[number]] > earliest)
                earliest = ends[node->dependencies[number]];
        is_placed = draw_node(node, &node_ns, &part, is_steady);
        ends[index] = earliest;
        if (is_placed && node_ns)
            is_placed = profile_place(&profile, 0, earliest, node_ns, part, &ends[index]);
        if (ends[index] > *duration_ns)
            *duration_ns = ends[index];
    }
    profile_clear(&profile);
    free(ends);
    return is_placed;
}

/* Executable graphs */

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    CUgraphExec fresh;

    if (!executable || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    fresh = calloc(1, sizeof(*fresh));
    if (fresh)
        fresh->graph = fake_graph_copy(graph);
    if (!fresh || !fresh->graph) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fresh->memory = fake_graph_memory_copy(graph->memory);
    fresh->is_freed_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    *executable = fresh;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphInstantiate_v2, CUgraphExec *executable, CUgraph graph, CUgraphNode *error_node, char *log, size_t size)
{
    if (error_node)
        *error_node = NULL;
    if (log && size)
        log[0] = '\0';
    return cuGraphInstantiateWithFlags(executable, graph, 0);
}

EXTRA(cuGraphInstantiate, CUgraphExec *executable, CUgraph graph, CUgraphNode *error_node, char *log, size_t size)
{
    return cuGraphInstantiate_v2(executable, graph, error_node, log, size);
}

EXTRA(cuGraphInstantiateWithParams, CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    params->error_node = NULL;
    params->result = 0;
    return cuGraphInstantiateWithFlags(executable, graph, params->flags);
}

EXTRA(cuGraphInstantiateWithParams_ptsz, CUgraphExec *executable, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    return cuGraphInstantiateWithParams(executable, graph, params);
}

API CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    cuGraphDestroy(executable->graph);
    fake_graph_memory_drop(executable->memory);
    free(executable);
    return CUDA_SUCCESS;
}

EXTRA(cuGraphExecKernelNodeSetParams_v2, CUgraphExec executable, CUgraphNode node, const struct fake_kernel_params *params)
{
    if (!executable || !params || !params->function)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < executable->graph->count; index++) {
        CUgraphNode copy = executable->graph->nodes[index];

        if (copy->original == node && copy->kind == FAKE_NODE_KERNEL) {
            copy->params = *params;
            executable->is_steady = false;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

EXTRA(cuGraphExecKernelNodeSetParams, CUgraphExec executable, CUgraphNode node, const void *params)
{
    struct fake_kernel_params whole;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    whole = fake_kernel_params_first(params);
    return cuGraphExecKernelNodeSetParams_v2(executable, node, &whole);
}

static int compare(CUgraph one, CUgraph other)
{
    if (one->count != other->count)
        return UPDATE_TOPOLOGY_CHANGED;
    for (size_t index = 0; index < one->count; index++) {
        if (one->nodes[index]->kind != other->nodes[index]->kind)
            return UPDATE_NODE_TYPE_CHANGED;
        if (one->nodes[index]->dependency_count != other->nodes[index]->dependency_count)
            return UPDATE_TOPOLOGY_CHANGED;
    }
    return UPDATE_SUCCESS;
}

static CUresult update(CUgraphExec executable, CUgraph graph, int *result)
{
    CUgraph copy;

    *result = compare(executable->graph, graph);
    if (*result != UPDATE_SUCCESS)
        return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    copy = fake_graph_copy(graph);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t index = 0; index < copy->count; index++)
        copy->nodes[index]->original = executable->graph->nodes[index]->original;
    cuGraphDestroy(executable->graph);
    executable->graph = copy;
    executable->is_steady = false;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphExecUpdate_v2, CUgraphExec executable, CUgraph graph, struct update_result *info)
{
    if (!executable || !graph || !info)
        return CUDA_ERROR_INVALID_VALUE;
    memset(info, 0, sizeof(*info));
    return update(executable, graph, &info->result);
}

EXTRA(cuGraphExecUpdate, CUgraphExec executable, CUgraph graph, CUgraphNode *error_node, int *result)
{
    if (!executable || !graph || !result)
        return CUDA_ERROR_INVALID_VALUE;
    if (error_node)
        *error_node = NULL;
    return update(executable, graph, result);
}

EXTRA(cuGraphUpload, CUgraphExec executable, CUstream stream)
{
    (void)stream;
    return executable ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXTRA(cuGraphUpload_ptsz, CUgraphExec executable, CUstream stream)
{
    return cuGraphUpload(executable, stream);
}

/* Host nodes, including those of child graphs, in the order they were added. */
static CUresult call_hosts(CUgraph graph, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t index = 0; result == CUDA_SUCCESS && index < graph->count; index++) {
        const struct CUgraphNode_st *node = graph->nodes[index];

        if (node->kind == FAKE_NODE_GRAPH)
            result = call_hosts(node->child, stream);
        else if (node->kind == FAKE_NODE_HOST)
            result = fake_enqueue(stream, node->call);
    }
    return result;
}

static CUresult run(CUgraphExec executable, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;

    if (!executable->is_steady) {
        executable->is_steady = true;
        if (!draw(executable->graph, &executable->duration_ns, &executable->is_steady))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (executable->duration_ns)
        result = fake_enqueue(stream,
                              (struct fake_step){.kind = FAKE_RUN, .duration_ns = executable->duration_ns, .part = PROFILE_WHOLE});
    return result == CUDA_SUCCESS ? call_hosts(executable->graph, stream) : result;
}

API CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    if (fake_capture_graph(stream, executable->graph, &result))
        return result;
    result = fake_graph_memory_launch(executable->memory, executable->is_freed_first);
    return result == CUDA_SUCCESS ? run(executable, stream) : result;
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphLaunch(executable, FOR_THREAD(stream));
}
