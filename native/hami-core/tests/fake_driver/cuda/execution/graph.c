/*
 * Graphs of the fake driver: building them by hand, and reading them. graph_launch.c makes and launches executable graphs.
 */
#include "cuda/execution/graph.h"

#include <stdlib.h>
#include <string.h>

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

struct fake_kernel_params fake_kernel_params_first(const void *params)
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
    whole = fake_kernel_params_first(params);
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
    whole = fake_kernel_params_first(params);
    return cuGraphKernelNodeSetParams_v2(node, &whole);
}
