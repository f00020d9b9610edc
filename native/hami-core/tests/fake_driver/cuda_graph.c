/*
 * Graphs of the fake driver: building, making executable, launching.
 *
 * An executable graph runs for as long as its kernels need on an idle device: one after another where they depend on each other or fill
 * it, side by side where they fit. To the stream it is one piece of work that takes the whole device; host nodes run after it.
 */
#include "cuda_graph.h"

#include <stdlib.h>
#include <string.h>

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

/* Building */

static size_t position_of(const struct CUgraph_st *graph, CUgraphNode node)
{
    size_t position = 0;

    while (position < graph->count && graph->nodes[position] != node)
        position++;
    return position;
}

static bool make_room(CUgraph graph)
{
    CUgraphNode *grown;

    if (graph->count < graph->room)
        return true;
    grown = realloc(graph->nodes, (graph->room * 2 + 8) * sizeof(*grown));
    if (!grown)
        return false;
    graph->nodes = grown;
    graph->room = graph->room * 2 + 8;
    return true;
}

static void free_node(CUgraphNode node)
{
    if (node->child)
        cuGraphDestroy(node->child);
    free(node->dependencies);
    free(node);
}

CUresult fake_graph_add(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                        const struct CUgraphNode_st *node)
{
    CUgraphNode fresh = malloc(sizeof(*fresh));

    if (!fresh || !make_room(graph)) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *fresh = *node;
    fresh->dependencies = malloc((count + 1) * sizeof(*fresh->dependencies));
    fresh->dependency_count = 0;
    if (!fresh->dependencies) {
        free(fresh);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    for (size_t index = 0; index < count; index++) {
        size_t position = position_of(graph, dependencies[index]);

        if (position < graph->count)
            fresh->dependencies[fresh->dependency_count++] = position;
    }
    graph->nodes[graph->count++] = fresh;
    *handle = fresh;
    return CUDA_SUCCESS;
}

static CUgraphNode copy_node(const struct CUgraphNode_st *node)
{
    CUgraphNode copy = malloc(sizeof(*copy));
    size_t bytes = node->dependency_count * sizeof(*node->dependencies);

    if (!copy)
        return NULL;
    *copy = *node;
    copy->original = (CUgraphNode)node;
    copy->child = node->child ? fake_graph_copy(node->child) : NULL;
    copy->dependencies = malloc(bytes + 1);
    if (!copy->dependencies || (node->child && !copy->child)) {
        free_node(copy);
        return NULL;
    }
    memcpy(copy->dependencies, node->dependencies, bytes);
    return copy;
}

CUgraph fake_graph_copy(CUgraph graph)
{
    CUgraph copy = calloc(1, sizeof(*copy));

    for (size_t index = 0; copy && index < graph->count; index++) {
        CUgraphNode node = make_room(copy) ? copy_node(graph->nodes[index]) : NULL;

        if (!node) {
            cuGraphDestroy(copy);
            return NULL;
        }
        copy->nodes[copy->count++] = node;
    }
    if (copy)
        copy->memory = fake_graph_memory_copy(graph->memory);
    return copy;
}

struct fake_graph_memory **fake_graph_memory_of(CUgraph graph)
{
    return &graph->memory;
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = calloc(1, sizeof(**graph));
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphDestroy(CUgraph graph)
{
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; index < graph->count; index++)
        free_node(graph->nodes[index]);
    fake_graph_memory_drop(graph->memory);
    free(graph->nodes);
    free(graph);
    return CUDA_SUCCESS;
}

EXTRA(cuGraphClone, CUgraph *clone, CUgraph graph)
{
    if (!clone || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *clone = fake_graph_copy(graph);
    return *clone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_checked(CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const struct CUgraphNode_st *node)
{
    if (!handle || !graph || (count && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    return fake_graph_add(handle, graph, dependencies, count, node);
}

EXTRA(cuGraphAddKernelNode_v2, CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count,
      const struct fake_kernel_params *params)
{
    if (!params || !params->function)
        return CUDA_ERROR_INVALID_VALUE;
    return add_checked(handle, graph, dependencies, count, &(struct CUgraphNode_st){.kind = FAKE_NODE_KERNEL, .params = *params});
}

static struct fake_kernel_params first_version(const void *params)
{
    struct fake_kernel_params whole = {0};

    memcpy(&whole, params, offsetof(struct fake_kernel_params, kernel));
    return whole;
}

EXTRA(cuGraphAddKernelNode, CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count, const void *params)
{
    struct fake_kernel_params whole;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    whole = first_version(params);
    return cuGraphAddKernelNode_v2(handle, graph, dependencies, count, &whole);
}

EXTRA(cuGraphAddChildGraphNode, CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child)
{
    struct CUgraphNode_st node = {.kind = FAKE_NODE_GRAPH};
    CUresult result;

    if (!child)
        return CUDA_ERROR_INVALID_VALUE;
    node.child = fake_graph_copy(child);
    result = node.child ? add_checked(handle, graph, dependencies, count, &node) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS && node.child)
        cuGraphDestroy(node.child);
    return result;
}

EXTRA(cuGraphAddEmptyNode, CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count)
{
    return add_checked(handle, graph, dependencies, count, &(struct CUgraphNode_st){.kind = FAKE_NODE_EMPTY});
}

/* CUDA_HOST_NODE_PARAMS begins with the function and its argument. */
EXTRA(cuGraphAddHostNode, CUgraphNode *handle, CUgraph graph, const CUgraphNode *dependencies, size_t count, const void *params)
{
    struct CUgraphNode_st node = {.kind = FAKE_NODE_HOST, .call = {.kind = FAKE_CALL}};

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&node.call.function, params, sizeof(node.call.function));
    memcpy(&node.call.data, (const char *)params + sizeof(node.call.function), sizeof(node.call.data));
    return add_checked(handle, graph, dependencies, count, &node);
}

EXTRA(cuGraphGetNodes, CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    if (!graph || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t index = 0; nodes && index < *count; index++)
        nodes[index] = index < graph->count ? graph->nodes[index] : NULL;
    if (!nodes || *count > graph->count)
        *count = graph->count;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphNodeGetType, CUgraphNode node, CUgraphNodeType *kind)
{
    if (!node || !kind)
        return CUDA_ERROR_INVALID_VALUE;
    *kind = (CUgraphNodeType)node->kind;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphChildGraphNodeGetGraph, CUgraphNode node, CUgraph *graph)
{
    if (!node || !graph || node->kind != FAKE_NODE_GRAPH)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = node->child;
    return CUDA_SUCCESS;
}

API CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    if (!node || !params || node->kind != FAKE_NODE_MEM_ALLOC)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->taken;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphKernelNodeGetParams_v2, CUgraphNode node, struct fake_kernel_params *params)
{
    if (!node || !params || node->kind != FAKE_NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    *params = node->params;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphKernelNodeGetParams, CUgraphNode node, void *params)
{
    if (!node || !params || node->kind != FAKE_NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(params, &node->params, offsetof(struct fake_kernel_params, kernel));
    return CUDA_SUCCESS;
}

EXTRA(cuGraphKernelNodeSetParams_v2, CUgraphNode node, const struct fake_kernel_params *params)
{
    if (!node || !params || !params->function || node->kind != FAKE_NODE_KERNEL)
        return CUDA_ERROR_INVALID_VALUE;
    node->params = *params;
    return CUDA_SUCCESS;
}

EXTRA(cuGraphKernelNodeSetParams, CUgraphNode node, const void *params)
{
    struct fake_kernel_params whole;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    whole = first_version(params);
    return cuGraphKernelNodeSetParams_v2(node, &whole);
}

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

/* Place the nodes on an idle device of their own; clears is_steady where another launch may take another time. */
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
    whole = first_version(params);
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

/* Host nodes, those of child graphs among them, in the order they were added. */
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
        result = fake_enqueue(stream, (struct fake_step){
                                          .kind = FAKE_RUN, .duration_ns = executable->duration_ns, .part = PROFILE_WHOLE});
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
    if (stream->capture)
        return fake_capture_graph(stream, executable->graph);
    result = fake_graph_memory_launch(executable->memory, executable->is_freed_first);
    return result == CUDA_SUCCESS ? run(executable, stream) : result;
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphLaunch(executable, FOR_THREAD(stream));
}
