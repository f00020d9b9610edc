/*
 * Virtual memory management: physical memory exists until its handles are released and its mappings are gone, in all processes.
 */
#include <stdlib.h>
#include <sys/types.h>

#include "cuda/memory/memory.h"

struct vmm_block {
    struct fake_charge charge;
    CUmemAllocationProp properties;
    int references; /* handles and mappings in this process */
    struct vmm_block *next;
};

static struct vmm_block *blocks;

static CUmemGenericAllocationHandle handle_of(struct vmm_block *block)
{
    return (CUmemGenericAllocationHandle)(uintptr_t)block;
}

static struct vmm_block *add_block(struct vmm_block properties)
{
    struct vmm_block *block = malloc(sizeof(*block));

    if (!block)
        return NULL;
    *block = properties;
    block->references = 1;
    block->next = blocks;
    blocks = block;
    return block;
}

static struct vmm_block *block_of(CUmemGenericAllocationHandle handle)
{
    struct vmm_block *block = blocks;

    while (block && handle_of(block) != handle)
        block = block->next;
    return block;
}

static void drop(struct vmm_block *block)
{
    struct vmm_block **link = &blocks;

    if (--block->references)
        return;
    while (*link != block)
        link = &(*link)->next;
    *link = block->next;
    fake_charge_give(&block->charge);
    free(block);
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                         unsigned long long flags)
{
    struct vmm_block fresh = {.references = 1};
    CUresult result = fake_check();
    struct vmm_block *block;
    int physical = -1;

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || !properties || flags || !bytes || bytes % HW_GRANULE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
        physical = fake_physical(properties->location.id);
        if (physical < 0)
            return CUDA_ERROR_INVALID_DEVICE;
    }
    if (!fake_charge_take(&fresh.charge, physical, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh.properties = *properties;
    fake_memory_lock();
    block = add_block(fresh);
    fake_memory_unlock();
    if (!block) {
        fake_charge_give(&fresh.charge);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = handle_of(block);
    return CUDA_SUCCESS;
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = fake_check();
    struct vmm_block *block;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    block = block_of(handle);
    if (block)
        drop(block);
    fake_memory_unlock();
    return block ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_around((uint64_t)(uintptr_t)address);
    if (handle && range && range->kind == FAKE_MAPPED) {
        struct vmm_block *block = range->owner;

        block->references++;
        *handle = handle_of(block);
    } else {
        result = CUDA_ERROR_INVALID_VALUE;
    }
    fake_memory_unlock();
    return result;
}

API CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, int type, unsigned long long flags)
{
    CUresult result = fake_check();
    struct vmm_block *block;
    int file = -1;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    block = block_of(handle);
    if (!shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !block || block->charge.physical < 0 ||
        !(block->properties.requestedHandleTypes & type))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (fake_charge_share(&block->charge))
        file = hw_block_export(block->charge.token);
    fake_memory_unlock();
    if (result == CUDA_SUCCESS && file < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *(int *)shareable = file;
    return result;
}

static struct vmm_block *import(uint64_t token)
{
    struct vmm_block fresh = {.charge = {.token = token}};
    struct vmm_block *block = blocks;

    while (block && block->charge.token != token)
        block = block->next;
    if (block) {
        block->references++;
        return block;
    }
    if (!token || !hw_block_hold(token, &fresh.charge.physical, &fresh.charge.bytes))
        return NULL;
    fresh.properties.type = 1;
    fresh.properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    fresh.properties.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, fake_ordinal(fresh.charge.physical)};
    block = add_block(fresh);
    if (!block)
        hw_block_drop(token);
    return block;
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
    CUresult result = fake_check();
    struct vmm_block *block;

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    block = import(hw_block_of_file((int)(intptr_t)shareable));
    fake_memory_unlock();
    if (!block)
        return CUDA_ERROR_INVALID_VALUE;
    *handle = handle_of(block);
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties, int option)
{
    if (!granularity || !properties || option < 0 || option > 1)
        return CUDA_ERROR_INVALID_VALUE;
    *granularity = HW_GRANULE_BYTES;
    return CUDA_SUCCESS;
}

EXTRA(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    struct vmm_block *block;

    fake_memory_lock();
    block = block_of(handle);
    if (block && properties)
        *properties = block->properties;
    fake_memory_unlock();
    return block && properties ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr address,
                                 unsigned long long flags)
{
    CUresult result = fake_check();

    (void)alignment;
    (void)address;
    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || flags || !bytes || bytes % HW_GRANULE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    *pointer = fake_address_take(bytes);
    fake_memory_unlock();
    return *pointer ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes)
{
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    fake_address_give(pointer, bytes);
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags)
{
    struct fake_range range = {.address = pointer, .bytes = bytes, .kind = FAKE_MAPPED};
    CUresult result = fake_check();
    struct vmm_block *block;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    block = block_of(handle);
    if (!pointer || !block || flags || !bytes || bytes % HW_GRANULE_BYTES || offset % HW_GRANULE_BYTES ||
        offset + bytes > block->charge.bytes || fake_range_at(pointer)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        range.charge.physical = block->charge.physical;
        range.owner = block;
        if (fake_range_insert(range))
            block->references++;
        else
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_memory_unlock();
    return result;
}

/* Whether whole mappings are adjacent from `pointer` to `end`. */
static bool is_mapped(CUdeviceptr pointer, CUdeviceptr end)
{
    while (pointer < end) {
        const struct fake_range *range = fake_range_at(pointer);

        if (!range || range->kind != FAKE_MAPPED)
            return false;
        pointer += range->bytes;
    }
    return pointer == end;
}

API CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    CUdeviceptr end = pointer + bytes;
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    if (!bytes || !is_mapped(pointer, end))
        result = CUDA_ERROR_INVALID_VALUE;
    while (result == CUDA_SUCCESS && pointer < end) {
        struct fake_range *range = fake_range_at(pointer);

        pointer += range->bytes;
        drop(range->owner);
        fake_range_erase(range);
    }
    fake_memory_unlock();
    return result;
}

API CUresult cuMemSetAccess(CUdeviceptr pointer, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = fake_check();
    bool is_valid;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    is_valid = access && count && bytes && is_mapped(pointer, pointer + bytes);
    fake_memory_unlock();
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
