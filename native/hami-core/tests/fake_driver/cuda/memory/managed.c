/*
 * Managed memory: on the device while there is room, otherwise on the host.
 *
 * Each range knows how much of it is on the device. The hardware knows how much this process has there in total, because other
 * processes and the process's plain allocations evict it. Before each look at the ranges the difference is taken from them. Kernels
 * name no memory, so only allocation and prefetching move pages to the device.
 */
#include "cuda/memory/memory.h"

#define ATTACH_GLOBAL 1u
#define ATTACH_HOST 2u

static uint64_t resident_bytes[HW_DEVICES_MAX];

static void settle(int physical)
{
    uint64_t actual = hw_managed_resident(physical);

    for (struct fake_range *range = fake_range_next(NULL); range && resident_bytes[physical] > actual;
         range = fake_range_next(range)) {
        uint64_t missing = resident_bytes[physical] - actual;

        if (range->kind != FAKE_MANAGED || range->charge.physical != physical)
            continue;
        missing = missing < range->resident_bytes ? missing : range->resident_bytes;
        range->resident_bytes -= missing;
        resident_bytes[physical] -= missing;
    }
}

static void bring(struct fake_range *range, uint64_t bytes)
{
    uint64_t taken;

    settle(range->charge.physical);
    if (bytes > range->charge.bytes - range->resident_bytes)
        bytes = range->charge.bytes - range->resident_bytes;
    taken = hw_managed_take(range->charge.physical, bytes);
    range->resident_bytes += taken;
    resident_bytes[range->charge.physical] += taken;
}

static void send_home(struct fake_range *range, uint64_t bytes)
{
    settle(range->charge.physical);
    bytes = bytes < range->resident_bytes ? bytes : range->resident_bytes;
    hw_managed_give(range->charge.physical, bytes);
    range->resident_bytes -= bytes;
    resident_bytes[range->charge.physical] -= bytes;
}

void fake_managed_end(struct fake_range *range)
{
    send_home(range, range->charge.bytes);
}

API CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    struct fake_range range = {.bytes = bytes, .kind = FAKE_MANAGED, .flags = flags};
    CUresult result = fake_current(&range.context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes || (flags != ATTACH_GLOBAL && flags != ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    range.charge.physical = range.context->physical;
    range.charge.bytes = (bytes + HW_GRANULE_BYTES - 1) & ~(HW_GRANULE_BYTES - 1);
    range.preferred = range.last_prefetch = (CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, -1};
    fake_memory_lock();
    range.address = fake_address_take(bytes);
    if (!range.address || !fake_range_insert(range))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (flags == ATTACH_GLOBAL)
        bring(fake_range_at(range.address), range.charge.bytes);
    fake_memory_unlock();
    if (result == CUDA_SUCCESS)
        *pointer = range.address;
    return result;
}

/* Which part of a range is where does not matter, only how much of it. */
static CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUmemLocation location)
{
    bool is_device = location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    if (is_device && fake_physical(location.id) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    fake_memory_lock();
    range = fake_range_around(pointer);
    if (!bytes || !range || range->kind != FAKE_MANAGED || pointer + bytes > range->address + range->bytes) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (!is_device) {
        send_home(range, (bytes + HW_GRANULE_BYTES - 1) & ~(HW_GRANULE_BYTES - 1));
    } else {
        if (range->charge.physical != fake_physical(location.id))
            send_home(range, range->charge.bytes);
        range->charge.physical = fake_physical(location.id);
        bring(range, (bytes + HW_GRANULE_BYTES - 1) & ~(HW_GRANULE_BYTES - 1));
    }
    if (result == CUDA_SUCCESS)
        range->last_prefetch = location;
    fake_memory_unlock();
    return result;
}

static CUresult advise(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_around(pointer);
    if (!bytes || advice < 1 || advice > 6 || !range || range->kind != FAKE_MANAGED)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (advice == 3) /* CU_MEM_ADVISE_SET_PREFERRED_LOCATION */
        range->preferred = location;
    else if (advice == 4) /* CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION */
        range->preferred = (CUmemLocation){CU_MEM_LOCATION_TYPE_INVALID, -1};
    fake_memory_unlock();
    return result;
}

/* Before CUDA 12.2 a location was a device, or -1 for the host. */
static CUmemLocation location_of(CUdevice device)
{
    return (CUmemLocation){device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
}

API CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    (void)stream;
    return prefetch(pointer, bytes, location_of(device));
}

API CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
    return cuMemPrefetchAsync(pointer, bytes, device, stream);
}

API CUresult cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream)
{
    (void)stream;
    return flags ? CUDA_ERROR_INVALID_VALUE : prefetch(pointer, bytes, location);
}

API CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location, unsigned int flags,
                                        CUstream stream)
{
    return cuMemPrefetchAsync_v2(pointer, bytes, location, flags, stream);
}

API CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
    return advise(pointer, bytes, advice, location_of(device));
}

API CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location)
{
    return advise(pointer, bytes, advice, location);
}

/* Each attribute has 4 bytes: a flag, or a device, with -1 for the host and -2 for none. */
EXTRA(cuMemRangeGetAttribute, void *data, size_t data_bytes, int attribute, CUdeviceptr pointer, size_t bytes)
{
    CUresult result = fake_check();
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_INVALID, -2};
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_around(pointer);
    if (range && range->kind == FAKE_MANAGED && (attribute == 2 || attribute == 4))
        location = attribute == 2 ? range->preferred : range->last_prefetch;
    if (!range || range->kind != FAKE_MANAGED || !data || data_bytes < sizeof(int) || !bytes)
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    if (result != CUDA_SUCCESS)
        return result;
    if (location.type == CU_MEM_LOCATION_TYPE_INVALID)
        *(int *)data = attribute == 1 ? 0 : -2;
    else
        *(int *)data = location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1;
    return CUDA_SUCCESS;
}
