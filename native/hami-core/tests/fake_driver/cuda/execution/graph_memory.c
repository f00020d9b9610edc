/*
 * Memory nodes of graphs.
 *
 * A node's address is fixed when the node is made. Its memory comes from the device's graph pool at the first launch and stays in
 * that pool until cuDeviceGraphMemTrim, even after a free. Nodes run in the order they were added.
 * Source: CUDA C++ Programming Guide, "Graph Memory Nodes".
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/execution/graph.h"
#include "cuda/memory/memory.h"

enum { TAKE = 1, GIVE = 2 };

struct memory_node {
    int what;
    int ordinal;
    uint64_t address, bytes;
};

struct fake_graph_memory {
    size_t count;
    struct memory_node nodes[];
};

static size_t size_of(size_t count)
{
    return sizeof(struct fake_graph_memory) + count * sizeof(struct memory_node);
}

static CUresult add(CUgraph graph, struct memory_node node)
{
    struct fake_graph_memory **memory = fake_graph_memory_of(graph);
    size_t count = *memory ? (*memory)->count : 0;
    struct fake_graph_memory *grown = realloc(*memory, size_of(count + 1));

    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    grown->nodes[count] = node;
    grown->count = count + 1;
    *memory = grown;
    return CUDA_SUCCESS;
}

struct fake_graph_memory *fake_graph_memory_copy(const struct fake_graph_memory *memory)
{
    struct fake_graph_memory *copy = memory ? malloc(size_of(memory->count)) : NULL;

    if (copy)
        memcpy(copy, memory, size_of(memory->count));
    return copy;
}

void fake_graph_memory_drop(struct fake_graph_memory *memory)
{
    free(memory);
}

CUresult fake_graph_take(CUgraphNode *handle, CUgraph graph, int ordinal, CUdeviceptr *pointer, uint64_t bytes)
{
    struct CUgraphNode_st shown = {.kind = FAKE_NODE_MEM_ALLOC, .taken = {.bytesize = bytes}};
    struct memory_node node = {TAKE, ordinal, 0, bytes};
    CUresult result;

    fake_memory_lock();
    node.address = fake_address_take(bytes);
    result = node.address ? add(graph, node) : CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_unlock();
    *pointer = shown.taken.dptr = node.address;
    shown.taken.poolProps.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
    return result == CUDA_SUCCESS ? fake_graph_add(handle, graph, NULL, 0, &shown) : result;
}

CUresult fake_graph_give(CUgraphNode *handle, CUgraph graph, CUdeviceptr pointer)
{
    CUresult result;

    fake_memory_lock();
    result = add(graph, (struct memory_node){.what = GIVE, .address = pointer});
    fake_memory_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    return fake_graph_add(handle, graph, NULL, 0, &(struct CUgraphNode_st){.kind = FAKE_NODE_MEM_FREE});
}

static CUresult run(const struct memory_node *node, bool is_freed_first)
{
    struct fake_range *range = fake_range_at(node->address);

    if (node->what == GIVE) {
        if (!range || range->kind != FAKE_POOLED)
            return CUDA_ERROR_INVALID_VALUE;
        fake_range_end(range);
        return CUDA_SUCCESS;
    }
    if (range && !is_freed_first)
        return CUDA_ERROR_INVALID_VALUE;
    if (range)
        fake_range_end(range);
    return fake_pool_take_at(fake_graph_pool(node->ordinal), node->address, node->bytes);
}

CUresult fake_graph_memory_launch(struct fake_graph_memory *memory, bool is_freed_first)
{
    CUresult result = CUDA_SUCCESS;

    fake_memory_lock();
    for (size_t index = 0; memory && result == CUDA_SUCCESS && index < memory->count; index++)
        result = run(&memory->nodes[index], is_freed_first);
    fake_memory_unlock();
    return result;
}

API CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                    CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUresult result = fake_check();

    (void)dependencies;
    (void)count;
    if (result != CUDA_SUCCESS)
        return result;
    if (!node || !graph || !params || !params->bytesize || params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        fake_physical(params->poolProps.location.id) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_graph_take(node, graph, params->poolProps.location.id, &params->dptr, params->bytesize);
}

/* A node of any kind by its description. Those that allocate are modelled. Source: cuda.h, CUgraphNodeParams. */
static CUresult add_described(CUgraphNode *node, CUgraph graph, CUgraphNodeParams *params)
{
    CUDA_MEM_ALLOC_NODE_PARAMS allocation;
    CUresult result;

    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    if (params->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC)
        return CUDA_ERROR_NOT_SUPPORTED;
    memcpy(&allocation, &params->reserved[3], sizeof(allocation));
    result = cuGraphAddMemAllocNode(node, graph, NULL, 0, &allocation);
    memcpy(&params->reserved[3], &allocation, sizeof(allocation));
    return result;
}

API CUresult cuGraphAddNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            CUgraphNodeParams *params)
{
    (void)dependencies;
    (void)count;
    return add_described(node, graph, params);
}

API CUresult cuGraphAddNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                               size_t count, CUgraphNodeParams *params)
{
    (void)edges;
    return cuGraphAddNode(node, graph, dependencies, count, params);
}

API CUresult cuGraphAddNode_v3(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                               size_t count, CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(node, graph, dependencies, edges, count, params);
}

API CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                   CUdeviceptr pointer)
{
    CUresult result = fake_check();

    (void)dependencies;
    (void)count;
    if (result != CUDA_SUCCESS)
        return result;
    if (!node || !graph || !pointer)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_graph_give(node, graph, pointer);
}

API CUresult cuDeviceGraphMemTrim(CUdevice device)
{
    return fake_physical(device) < 0 ? CUDA_ERROR_INVALID_DEVICE : cuMemPoolTrimTo(fake_graph_pool(device), 0);
}

/* The graph attributes are the pool's with other numbers. */
static CUmemPool_attribute pool_attribute(CUgraphMem_attribute attribute)
{
    static const CUmemPool_attribute of[] = {CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH,
                                             CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH};

    return (unsigned int)attribute < sizeof(of) / sizeof(of[0]) ? of[attribute] : (CUmemPool_attribute)0;
}

API CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    if (fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemPoolGetAttribute(fake_graph_pool(device), pool_attribute(attribute), value);
}

API CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value)
{
    if (fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return cuMemPoolSetAttribute(fake_graph_pool(device), pool_attribute(attribute), value);
}
