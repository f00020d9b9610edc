/*
 * Pools, and the stream-ordered memory that comes from them.
 *
 * A pool reserves physical memory in blocks of FAKE_DRIVER_POOL_GROWTH_MIB and packs its allocations without gaps: it grows when what
 * is used, in units of 512 bytes, passes what is reserved. A free counts at once, in whatever stream; what a pool keeps beyond its
 * release threshold goes back at the next synchronisation, by a trim, or with the pool. A destroyed pool lives on until its last
 * allocation is freed. Source of the rules: CUDA C++ Programming Guide, "Stream Ordered Memory Allocator".
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda_memory.h"

struct CUmemPoolHandle_st {
    int ordinal; /* < 0: the host's */
    bool is_graph, is_imported, is_destroyed;
    int handle_types;
    size_t limit_bytes; /* 0: none */
    uint64_t threshold_bytes, policy[3];
    uint64_t reserved_bytes, reserved_high_bytes, used_bytes, used_high_bytes;
    struct CUmemPoolHandle_st *next;
};

static struct CUmemPoolHandle_st defaults[HW_DEVICES_MAX], graphs[HW_DEVICES_MAX];
static struct CUmemPoolHandle_st *current[HW_DEVICES_MAX];
static struct CUmemPoolHandle_st *made; /* by cuMemPoolCreate */

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t growth_bytes(void)
{
    return rounded(fake_setting("FAKE_DRIVER_POOL_GROWTH_MIB", 32) * HW_MIB, HW_GRANULE_BYTES);
}

static CUmemoryPool default_pool(int ordinal)
{
    defaults[ordinal].ordinal = ordinal;
    return &defaults[ordinal];
}

CUmemoryPool fake_graph_pool(int ordinal)
{
    graphs[ordinal].ordinal = ordinal;
    graphs[ordinal].is_graph = true;
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

static bool is_default(CUmemoryPool pool)
{
    return pool >= defaults && pool < defaults + HW_DEVICES_MAX;
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

static void shrink(CUmemoryPool pool, uint64_t keep_bytes)
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

void fake_pool_take_back(struct fake_range *range)
{
    CUmemoryPool pool = range->owner;

    pool->used_bytes -= rounded(range->bytes, HW_UNIT_BYTES);
    if (pool->is_destroyed && pool->used_bytes == 0) {
        shrink(pool, 0);
        forget(pool);
    }
}

void fake_pools_settle(void)
{
    fake_memory_lock();
    for (int ordinal = 0; ordinal < HW_DEVICES_MAX; ordinal++)
        shrink(&defaults[ordinal], defaults[ordinal].threshold_bytes);
    for (CUmemoryPool pool = made; pool; pool = pool->next)
        shrink(pool, pool->is_destroyed ? 0 : pool->threshold_bytes);
    fake_memory_unlock();
}

static bool is_of_device(const struct fake_range *range, const void *ordinal)
{
    return range->kind == FAKE_POOLED && fake_pool_ordinal(range->owner) == *(const int *)ordinal;
}

/* The end of a device's primary context empties its pools. */
void fake_pools_forget(int ordinal)
{
    fake_ranges_end(is_of_device, &ordinal);
    shrink(default_pool(ordinal), 0);
    shrink(fake_graph_pool(ordinal), 0);
    for (CUmemoryPool pool = made; pool; pool = pool->next)
        if (pool->ordinal == ordinal)
            shrink(pool, 0);
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

/* Pools as such */

static CUresult check_ordinal(CUdevice device, const void *output)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return output ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = check_ordinal(device, pool);

    if (result == CUDA_SUCCESS)
        *pool = default_pool(device);
    return result;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = check_ordinal(device, pool);

    if (result == CUDA_SUCCESS)
        *pool = current[device] ? current[device] : default_pool(device);
    return result;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = check_ordinal(device, pool);

    if (result == CUDA_SUCCESS && (pool->ordinal != device || pool->is_imported))
        return CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        current[device] = pool;
    return result;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    (void)type;
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetDefaultMemPool(pool, location->id);
}

API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    (void)type;
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceGetMemPool(pool, location->id);
}

API CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    (void)type;
    if (!location || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    return cuDeviceSetMemPool(location->id, pool);
}

static CUresult add_pool(CUmemoryPool *pool, struct CUmemPoolHandle_st properties)
{
    CUmemoryPool fresh = malloc(sizeof(*fresh));

    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = properties;
    fake_memory_lock();
    fresh->next = made;
    made = fresh;
    fake_memory_unlock();
    *pool = fresh;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *properties)
{
    CUresult result = fake_check();
    struct CUmemPoolHandle_st fresh = {.ordinal = -1};

    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || !properties)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
        fresh.ordinal = properties->location.id;
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE && fake_physical(fresh.ordinal) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    fresh.handle_types = properties->handleTypes;
    fresh.limit_bytes = properties->maxSize;
    return add_pool(pool, fresh);
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || is_default(pool))
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    if (pool->ordinal >= 0 && current[pool->ordinal] == pool)
        current[pool->ordinal] = NULL;
    pool->is_destroyed = true;
    shrink(pool, 0);
    if (pool->used_bytes == 0)
        forget(pool);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pool)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    shrink(pool, keep_bytes);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

/* Attributes 1 to 3 are the policies for reuse, whole numbers of 4 bytes; the rest are of 8. */
API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pool || !value)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    if ((int)attribute >= 1 && (int)attribute <= 3)
        pool->policy[(int)attribute - 1] = *(const unsigned int *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        pool->threshold_bytes = *(const cuuint64_t *)value;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && *(const cuuint64_t *)value == 0)
        pool->reserved_high_bytes = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && *(const cuuint64_t *)value == 0)
        pool->used_high_bytes = pool->used_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pool || !value)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    if ((int)attribute >= 1 && (int)attribute <= 3)
        *(unsigned int *)value = (unsigned int)pool->policy[(int)attribute - 1];
    else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        *(cuuint64_t *)value = pool->threshold_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
        *(cuuint64_t *)value = pool->reserved_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH)
        *(cuuint64_t *)value = pool->reserved_high_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
        *(cuuint64_t *)value = pool->used_bytes;
    else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
        *(cuuint64_t *)value = pool->used_high_bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
    return pool && access && count ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
    if (!flags || !pool || !location)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = location->type == CU_MEM_LOCATION_TYPE_DEVICE && location->id == pool->ordinal ? 3 : 0;
    return fake_check();
}

/* A pool in another process's hands costs nothing there: its memory stays charged to the process that made it, while that lives. */

API CUresult cuMemPoolExportToShareableHandle(void *handle, CUmemoryPool pool, int type, unsigned long long flags)
{
    CUresult result = fake_check();
    int file;

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !(pool->handle_types & type))
        return CUDA_ERROR_INVALID_VALUE;
    file = memfd_create("fake-driver-pool", MFD_CLOEXEC);
    if (file < 0)
        return CUDA_ERROR_UNKNOWN;
    *(int *)handle = file;
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *handle, int type, unsigned long long flags)
{
    CUresult result = fake_check();

    (void)handle;
    if (result != CUDA_SUCCESS)
        return result;
    if (!pool || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    return add_pool(pool, (struct CUmemPoolHandle_st){.ordinal = -1, .is_imported = true});
}

API CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_at(pointer);
    if (data && range && range->kind == FAKE_POOLED)
        *(uint64_t *)(void *)data->reserved = range->bytes;
    else
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    uint64_t bytes = data ? *(const uint64_t *)(const void *)data->reserved : 0;
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes || !pool || !pool->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    *pointer = fake_address_take(bytes);
    result = *pointer ? fake_pool_take_at(pool, *pointer, bytes) : CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_unlock();
    return result;
}
