/*
 * The hooks of virtual memory management. Physical memory is charged when it is created, and discharged when the driver frees it:
 * when its last handle is released, its last mapping is gone, and it is bound to no multicast object.
 *
 * Memory that another process exported is charged to that process while it holds it; its handles are unknown here and are
 * forwarded. Memory that this process exported and imports again has the same handle. Mappings into sparse arrays keep memory alive
 * in the driver but not in this account. They are rare, and the handle is usually kept.
 */
#include "account.h"
#include "devices.h"
#include "hooks.h"

/* Return the device of one whole mapping. A range of several mappings may belong to several devices. */
static int device_of(CUdeviceptr pointer, size_t bytes)
{
    struct hami_charge mapping;

    return hami_charges_find(&hami_mappings, pointer, &mapping) && mapping.bytes >= bytes ? mapping.device : HAMI_ANY_DEVICE;
}

/* Multicast objects have no memory. They are among the handles because memory stays bound to them until they end. */
enum { MULTICAST = -1 };

static void drop_bound(const struct hami_charge *binding);

static void drop(uint64_t handle)
{
    struct hami_charge taken;

    if (!hami_charges_drop(&hami_handles, handle, &taken))
        return;
    if (taken.device == MULTICAST)
        hami_charges_take_owned(&hami_bindings, handle, drop_bound);
    else
        hami_memory_discharge(&taken);
}

static void drop_bound(const struct hami_charge *binding)
{
    drop(binding->bytes);
}

HAMI_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties,
                                 unsigned long long flags)
{
    bool is_device = handle && bytes && properties && properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;

    HAMI_MEMORY_MAKE(cuMemCreate, (handle, bytes, properties, flags), handle, hami_handles,
                     is_device ? hami_device_of_ordinal(properties->location.id) : -1,
                     ((struct hami_charge){.bytes = bytes, .references = 1}), cuMemRelease);
}

HAMI_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result;

    HAMI_CHANGING(hami_charges_device(&hami_handles, handle));
    result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemRelease)(handle));
    if (result == CUDA_SUCCESS && handle && !hami_inside)
        drop(handle);
    return result;
}

HAMI_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemRetainAllocationHandle)(handle, address));

    if (result == CUDA_SUCCESS && *handle && !hami_inside)
        hami_charges_retain(&hami_handles, *handle);
    return result;
}

HAMI_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, int type)
{
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemImportFromShareableHandle)(handle, shareable, type));

    if (result == CUDA_SUCCESS && *handle && !hami_inside)
        hami_charges_retain(&hami_handles, *handle);
    return result;
}

HAMI_EXPORT CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                              unsigned long long flags)
{
    struct hami_charge charge, replaced;
    struct hami_charge mapping = {.key = pointer, .bytes = bytes, .owner = handle};
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemMap)(pointer, bytes, offset, handle, flags));

    if (result != CUDA_SUCCESS || hami_inside || !handle || !hami_charges_find(&hami_handles, handle, &charge))
        return result;
    mapping.device = charge.device;
    if (hami_charges_put(&hami_mappings, mapping, &replaced))
        hami_charges_retain(&hami_handles, handle);
    return result;
}

/* One call may unmap several adjacent mappings. The driver has checked that they are whole. */
HAMI_EXPORT CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes)
{
    struct hami_charge mapping;
    CUresult result;

    HAMI_CHANGING(device_of(pointer, bytes));
    result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMemUnmap)(pointer, bytes));
    if (result != CUDA_SUCCESS || hami_inside)
        return result;
    for (CUdeviceptr end = pointer + bytes; pointer && pointer < end; pointer += mapping.bytes) {
        if (!hami_charges_take(&hami_mappings, pointer, &mapping))
            break;
        drop(mapping.owner);
    }
    return result;
}

/* Multicast objects */

HAMI_EXPORT CUresult cuMulticastCreate(CUmemGenericAllocationHandle *object, const struct CUmulticastObjectProp_st *properties)
{
    struct hami_charge made = {.device = MULTICAST, .references = 1}, replaced;
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuMulticastCreate)(object, properties));

    if (result == CUDA_SUCCESS && !hami_inside) {
        made.key = *object;
        hami_charges_put(&hami_handles, made, &replaced);
    }
    return result;
}

/* The key of a place in a multicast object. Offsets are multiples of 64 KiB at least, so a device fits beside one. */
static uint64_t place_of(uint64_t object, int device, size_t offset)
{
    return object * 0x9e3779b97f4a7c15u ^ (offset + (uint64_t)device + 1);
}

/* Note that memory is bound. An unknown handle is memory of another process, or of the host. */
static CUresult bind(CUresult result, uint64_t object, size_t offset, uint64_t memory)
{
    struct hami_charge charge, replaced, binding = {.owner = object, .bytes = memory};

    if (result != CUDA_SUCCESS || hami_inside || !memory || !hami_charges_find(&hami_handles, memory, &charge))
        return result;
    binding.key = place_of(object, charge.device, offset);
    if (!hami_charges_put(&hami_bindings, binding, &replaced))
        return result;
    hami_charges_retain(&hami_handles, memory);
    if (replaced.key)
        drop(replaced.bytes);
    return result;
}

/* Return the handle of the memory that is mapped at an address, or 0. */
static uint64_t memory_at(CUdeviceptr pointer)
{
    CUmemGenericAllocationHandle handle;

    if (hami_inside || HAMI_INSIDE(hami_real.cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)pointer)) != CUDA_SUCCESS)
        return 0;
    HAMI_INSIDE(hami_real.cuMemRelease(handle));
    return handle;
}

#define BIND(symbol, memory, ...)                                                     \
    do {                                                                              \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                           \
                                                                                      \
        return bind(HAMI_INSIDE(real_(object, __VA_ARGS__)), object, offset, memory); \
    } while (0)

HAMI_EXPORT CUresult cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t offset, CUmemGenericAllocationHandle memory,
                                        size_t memory_offset, size_t bytes, unsigned long long flags)
{
    BIND(cuMulticastBindMem, memory, offset, memory, memory_offset, bytes, flags);
}

HAMI_EXPORT CUresult cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                           CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes,
                                           unsigned long long flags)
{
    BIND(cuMulticastBindMem_v2, memory, device, offset, memory, memory_offset, bytes, flags);
}

HAMI_EXPORT CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t offset, CUdeviceptr pointer, size_t bytes,
                                         unsigned long long flags)
{
    BIND(cuMulticastBindAddr, memory_at(pointer), offset, pointer, bytes, flags);
}

HAMI_EXPORT CUresult cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t offset,
                                            CUdeviceptr pointer, size_t bytes, unsigned long long flags)
{
    BIND(cuMulticastBindAddr_v2, memory_at(pointer), device, offset, pointer, bytes, flags);
}

HAMI_EXPORT CUresult cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice ordinal, size_t offset, size_t bytes)
{
    __typeof__(&cuMulticastUnbind) real = HAMI_REAL_CUDA(cuMulticastUnbind);
    int device = real && !hami_inside ? hami_device_of_ordinal(ordinal) : -1;
    struct hami_charge binding;
    CUresult result;

    HAMI_CHANGING(device);
    result = HAMI_INSIDE(real(object, ordinal, offset, bytes));
    if (result == CUDA_SUCCESS && device >= 0 && hami_charges_take(&hami_bindings, place_of(object, device, offset), &binding))
        drop(binding.bytes);
    return result;
}
