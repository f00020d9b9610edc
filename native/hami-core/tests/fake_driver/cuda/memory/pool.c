/*
 * Pools: what they reserve, use and give back.
 */
#include <stdlib.h>

#include "cuda/memory/pool.h"

static struct CUmemPoolHandle_st defaults[HW_DEVICES_MAX], graphs[HW_DEVICES_MAX];
static struct CUmemPoolHandle_st *current[HW_DEVICES_MAX];
static struct CUmemPoolHandle_st *made; /* by fake_pool_open() */

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t growth_bytes(void)
{
    return rounded(fake_setting("FAKE_DRIVER_POOL_GROWTH_MIB", 32) * HW_MIB, HW_GRANULE_BYTES);
}

void fake_pools_prepare(int ordinal)
{
    defaults[ordinal].ordinal = ordinal;
    graphs[ordinal].ordinal = ordinal;
    graphs[ordinal].is_graph = true;
}

CUmemoryPool fake_pool_default(int ordinal)
{
    return &defaults[ordinal];
}

CUmemoryPool fake_pool_current(int ordinal)
{
    return current[ordinal] ? current[ordinal] : fake_pool_default(ordinal);
}

void fake_pool_set_current(int ordinal, CUmemoryPool pool)
{
    current[ordinal] = pool;
}

CUmemoryPool fake_graph_pool(int ordinal)
{
    return &graphs[ordinal];
}

bool fake_pool_is_graph(CUmemoryPool pool)
{
    return pool->is_graph;
}

bool fake_pool_is_imported(CUmemoryPool pool)
{
    return pool->is_imported;
}

int fake_pool_ordinal(CUmemoryPool pool)
{
    return pool->ordinal;
}

static bool reserve(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t more = bytes - pool->reserved_bytes;

    if (pool->limit_bytes && bytes > pool->limit_bytes)
        return false;
    if (pool->ordinal >= 0 && !hw_memory_take(fake_physical(pool->ordinal), more))
        return false;
    pool->reserved_bytes = bytes;
    if (bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = bytes;
    return true;
}

void fake_pool_shrink(CUmemoryPool pool, uint64_t keep_bytes)
{
    uint64_t kept = pool->used_bytes > keep_bytes ? pool->used_bytes : keep_bytes;

    if (kept >= pool->reserved_bytes)
        return;
    kept = rounded(kept, growth_bytes());
    if (kept >= pool->reserved_bytes)
        return;
    if (pool->ordinal >= 0)
        hw_memory_give(fake_physical(pool->ordinal), pool->reserved_bytes - kept);
    pool->reserved_bytes = kept;
}

static bool use(CUmemoryPool pool, uint64_t bytes)
{
    uint64_t used = pool->used_bytes + rounded(bytes, HW_UNIT_BYTES);

    if (used > pool->reserved_bytes && !reserve(pool, rounded(used, growth_bytes())))
        return false;
    pool->used_bytes = used;
    if (used > pool->used_high_bytes)
        pool->used_high_bytes = used;
    return true;
}

static void forget(CUmemoryPool pool)
{
    CUmemoryPool *link = &made;

    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    free(pool);
}

CUmemoryPool fake_pool_open(struct CUmemPoolHandle_st properties)
{
    CUmemoryPool pool = malloc(sizeof(*pool));

    if (!pool)
        return NULL;
    *pool = properties;
    pool->next = made;
    made = pool;
    return pool;
}

bool fake_pool_close(CUmemoryPool pool)
{
    if (pool >= defaults && pool < defaults + HW_DEVICES_MAX)
        return false;
    if (pool->ordinal >= 0 && current[pool->ordinal] == pool)
        current[pool->ordinal] = NULL;
    pool->is_destroyed = true;
    fake_pool_shrink(pool, 0);
    if (pool->used_bytes == 0)
        forget(pool);
    return true;
}

void fake_pool_take_back(struct fake_range *range)
{
    CUmemoryPool pool = range->owner;

    pool->used_bytes -= rounded(range->bytes, HW_UNIT_BYTES);
    if (pool->is_destroyed && pool->used_bytes == 0) {
        fake_pool_shrink(pool, 0);
        forget(pool);
    }
}

void fake_pools_settle(void)
{
    fake_memory_lock();
    for (int ordinal = 0; ordinal < HW_DEVICES_MAX; ordinal++)
        fake_pool_shrink(&defaults[ordinal], defaults[ordinal].threshold_bytes);
    for (CUmemoryPool pool = made; pool; pool = pool->next)
        fake_pool_shrink(pool, pool->is_destroyed ? 0 : pool->threshold_bytes);
    fake_memory_unlock();
}

static bool is_of_device(const struct fake_range *range, const void *ordinal)
{
    return range->kind == FAKE_POOLED && fake_pool_ordinal(range->owner) == *(const int *)ordinal;
}

/* When a device's primary context ends, its pools are emptied. */
void fake_pools_forget(int ordinal)
{
    fake_ranges_end(is_of_device, &ordinal);
    fake_pool_shrink(fake_pool_default(ordinal), 0);
    fake_pool_shrink(fake_graph_pool(ordinal), 0);
    for (CUmemoryPool pool = made; pool; pool = pool->next)
        if (pool->ordinal == ordinal)
            fake_pool_shrink(pool, 0);
}

CUresult fake_pool_take_at(CUmemoryPool pool, uint64_t address, uint64_t bytes)
{
    struct fake_range range = {.address = address, .bytes = bytes, .kind = FAKE_POOLED, .owner = pool};

    if (!use(pool, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (fake_range_insert(range))
        return CUDA_SUCCESS;
    pool->used_bytes -= rounded(bytes, HW_UNIT_BYTES);
    return CUDA_ERROR_OUT_OF_MEMORY;
}
