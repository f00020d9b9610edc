/*
 * Virtual memory management: physical memory exists until its handles are released and its mappings are gone, in all processes.
 * Memory that is bound to a multicast object exists until it is unbound or the object ends.
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

/* Memory that is bound to a multicast object, which is a block without memory. */
struct vmm_binding {
    struct vmm_block *object, *memory;
    size_t offset;
    struct vmm_binding *next;
};

static struct vmm_block *blocks;
static struct vmm_binding *bindings;

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

static void drop(struct vmm_block *block);

/* Unbind what is bound to an object: all of it, or what a device has at an offset. Returns how much. */
static int unbind(const struct vmm_block *object, int physical, size_t offset)
{
    int unbound = 0;

    for (struct vmm_binding **link = &bindings, *binding; (binding = *link);) {
        if (binding->object != object ||
            (physical >= 0 && (binding->memory->charge.physical != physical || binding->offset != offset))) {
            link = &binding->next;
            continue;
        }
        *link = binding->next;
        drop(binding->memory);
        free(binding);
        unbound++;
    }
    return unbound;
}

static void drop(struct vmm_block *block)
{
    struct vmm_block **link = &blocks;

    if (--block->references)
        return;
    unbind(block, -1, 0);
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

/* Multicast objects */

struct CUmulticastObjectProp_st {
    unsigned int device_count;
    size_t bytes;
    unsigned long long handle_types, flags;
};

API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *object, const struct CUmulticastObjectProp_st *properties)
{
    CUresult result = fake_check();
    struct vmm_block *block = NULL;

    if (result != CUDA_SUCCESS)
        return result;
    if (!object || !properties || !properties->bytes || properties->bytes % HW_GRANULE_BYTES)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    block = add_block((struct vmm_block){.charge = {.physical = -1, .bytes = properties->bytes}});
    fake_memory_unlock();
    if (block)
        *object = handle_of(block);
    return block ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXTRA(cuMulticastAddDevice, CUmemGenericAllocationHandle object, CUdevice device)
{
    bool is_known;

    fake_memory_lock();
    is_known = block_of(object);
    fake_memory_unlock();
    return is_known && fake_physical(device) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* The caller holds the lock. */
static CUresult bind(CUmemGenericAllocationHandle object, size_t offset, struct vmm_block *memory)
{
    struct vmm_binding *binding = memory && block_of(object) ? malloc(sizeof(*binding)) : NULL;

    if (!binding)
        return CUDA_ERROR_INVALID_VALUE;
    *binding = (struct vmm_binding){block_of(object), memory, offset, bindings};
    bindings = binding;
    memory->references++;
    return CUDA_SUCCESS;
}

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
                                size_t memory_offset, size_t bytes, unsigned long long flags)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS || memory_offset || flags || !bytes)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    result = bind(object, offset, block_of(memory));
    fake_memory_unlock();
    return result;
}

API CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                   CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                                   unsigned long long flags)
{
    (void)device;
    return cuMulticastBindMem(object, offset, memory, memory_offset, bytes, flags);
}

API CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr pointer, size_t bytes,
                                 unsigned long long flags)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS || flags || !bytes)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    range = fake_range_around(pointer);
    result = bind(object, offset, range && range->kind == FAKE_MAPPED ? range->owner : NULL);
    fake_memory_unlock();
    return result;
}

API CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, CUdeviceptr pointer,
                                    size_t bytes, unsigned long long flags)
{
    (void)device;
    return cuMulticastBindAddr(object, offset, pointer, bytes, flags);
}

API CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t offset, size_t bytes)
{
    CUresult result = fake_check();
    int physical = fake_physical(device), unbound;

    if (result != CUDA_SUCCESS || physical < 0 || !bytes)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    unbound = unbind(block_of(object), physical, offset);
    fake_memory_unlock();
    return unbound ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
