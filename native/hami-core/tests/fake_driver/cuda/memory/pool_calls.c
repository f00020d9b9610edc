/*
 * The functions of pools that programs call.
 */
#include <sys/mman.h>

#include "cuda/memory/pool.h"

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = fake_check_device(device, pool);

    if (result == CUDA_SUCCESS)
        *pool = fake_pool_default(device);
    return result;
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
    CUresult result = fake_check_device(device, pool);

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    *pool = fake_pool_current(device);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
    CUresult result = fake_check_device(device, pool);

    if (result != CUDA_SUCCESS)
        return result;
    if (pool->ordinal != device || pool->is_imported)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    fake_pool_set_current(device, pool);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

/* Return the ordinal of a device's location, or -1. */
static int ordinal_of(const CUmemLocation *location)
{
    return location && location->type == CU_MEM_LOCATION_TYPE_DEVICE ? location->id : -1;
}

API CUresult cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    (void)type;
    return cuDeviceGetDefaultMemPool(pool, ordinal_of(location));
}

API CUresult cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
    (void)type;
    return cuDeviceGetMemPool(pool, ordinal_of(location));
}

API CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
    (void)type;
    return cuDeviceSetMemPool(ordinal_of(location), pool);
}

static CUresult open_pool(CUmemoryPool *pool, struct CUmemPoolHandle_st properties)
{
    fake_memory_lock();
    *pool = fake_pool_open(properties);
    fake_memory_unlock();
    return *pool ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
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
    return open_pool(pool, fresh);
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pool)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    result = fake_pool_close(pool) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep_bytes)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || !pool)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    fake_pool_shrink(pool, keep_bytes);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

/* Attributes 1 to 3 are the reuse policies, integers of 4 bytes; the others have 8. */
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

/* A pool that another process imported takes nothing there: its memory stays charged to its maker while that lives. */

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
    return open_pool(pool, (struct CUmemPoolHandle_st){.ordinal = -1, .is_imported = true});
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
