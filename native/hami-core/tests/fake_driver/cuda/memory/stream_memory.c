/* Stream-ordered allocation. In a stream that is being captured the calls become nodes of the graph. */
#include "cuda/memory/pool.h"

/* Without a pool, allocate from the device's current one at this moment: another thread may set it. */
static CUresult allocate(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, int ordinal)
{
    uint64_t address;
    CUresult result;

    fake_memory_lock();
    if (!pool)
        pool = fake_pool_current(ordinal);
    address = fake_address_take(bytes);
    result = address ? fake_pool_take_at(pool, address, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *pointer = address;
    else if (address)
        fake_address_give(address, bytes);
    fake_memory_unlock();
    return result;
}

static CUresult allocate_on(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    CUcontext context;
    CUgraphNode node;
    CUgraph graph;
    int ordinal;
    CUresult result = cuStreamGetCtx(stream, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    ordinal = pool ? fake_pool_ordinal(pool) : context->ordinal;
    graph = fake_capture_enter(stream);
    if (!graph)
        return allocate(pointer, bytes, pool, ordinal);
    result = ordinal < 0 ? CUDA_ERROR_NOT_SUPPORTED : fake_graph_take(&node, graph, ordinal, pointer, bytes);
    fake_capture_leave();
    return result;
}

API CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_on(pointer, bytes, NULL, stream);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
    return allocate_on(pointer, bytes, NULL, stream ? stream : CU_STREAM_PER_THREAD);
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return pool && !fake_pool_is_imported(pool) ? allocate_on(pointer, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    return cuMemAllocFromPoolAsync(pointer, bytes, pool, stream ? stream : CU_STREAM_PER_THREAD);
}

API CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
    CUcontext context;
    CUresult result = cuStreamGetCtx(stream, &context);
    struct fake_range *range;
    CUgraphNode node;
    CUgraph graph;

    if (result != CUDA_SUCCESS || !pointer)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    graph = fake_capture_enter(stream);
    if (graph) {
        result = fake_graph_give(&node, graph, pointer);
        fake_capture_leave();
        return result;
    }
    fake_memory_lock();
    range = fake_range_at(pointer);
    if (range && (range->kind == FAKE_POOLED || range->kind == FAKE_PLAIN))
        fake_range_end(range);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
    return cuMemFreeAsync(pointer, stream ? stream : CU_STREAM_PER_THREAD);
}
