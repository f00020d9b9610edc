/*
 * Plain device memory: allocated in a context, freed by its address or at the end of its context.
 */
#include "cuda/memory/memory.h"

#include "hardware/limits.h"

#define LOW_BASE 0x10000000u
#define BYTES_MAX ((uint64_t)1 << 39)

static uint32_t low_next = LOW_BASE;

bool fake_charge_take(struct fake_charge *charge, int physical, uint64_t bytes)
{
    *charge = (struct fake_charge){physical, bytes, 0};
    return physical < 0 || hw_memory_take(physical, bytes);
}

void fake_charge_give(const struct fake_charge *charge)
{
    if (charge->token)
        hw_block_drop(charge->token);
    else if (charge->physical >= 0)
        hw_memory_give(charge->physical, charge->bytes);
}

bool fake_charge_share(struct fake_charge *charge)
{
    if (!charge->token)
        charge->token = hw_block_share(charge->physical, charge->bytes);
    return charge->token != 0;
}

CUresult fake_range_start(CUdeviceptr *pointer, struct fake_range range)
{
    range.address = fake_address_take(range.bytes);
    if (range.address && fake_range_insert(range)) {
        *pointer = range.address;
        return CUDA_SUCCESS;
    }
    if (range.address)
        fake_address_give(range.address, range.bytes);
    fake_charge_give(&range.charge);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void fake_range_end(struct fake_range *range)
{
    bool is_kept = range->kind == FAKE_POOLED && fake_pool_is_graph(range->owner); /* the graph keeps the address */
    struct fake_range ended;

    if (range->kind == FAKE_MANAGED)
        fake_managed_end(range);
    else if (range->kind == FAKE_POOLED)
        fake_pool_take_back(range);
    else
        fake_charge_give(&range->charge);
    ended = *range;
    fake_range_erase(range);
    if (!is_kept)
        fake_address_give(ended.address, ended.bytes);
}

static CUresult allocate(CUdeviceptr *pointer, uint64_t bytes)
{
    struct fake_range range = {.bytes = bytes, .kind = FAKE_PLAIN};
    CUresult result = fake_current(&range.context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes > BYTES_MAX || !fake_charge_take(&range.charge, range.context->physical, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_lock();
    result = fake_range_start(pointer, range);
    fake_memory_unlock();
    return result;
}

/* For the calls of CUDA 3.1, whose pointers have 32 bits: there is no memory behind such an address. */
static CUresult allocate_low(CUdeviceptr_v1 *pointer, uint64_t bytes)
{
    struct fake_range range = {.bytes = bytes, .kind = FAKE_PLAIN};
    CUresult result = fake_current(&range.context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!fake_charge_take(&range.charge, range.context->physical, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_lock();
    range.address = low_next;
    if (fake_range_insert(range)) {
        low_next += (uint32_t)((bytes + HW_UNIT_BYTES - 1) & ~(HW_UNIT_BYTES - 1));
        *pointer = (CUdeviceptr_v1)range.address;
    } else {
        fake_charge_give(&range.charge);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    fake_memory_unlock();
    return result;
}

static CUresult release(CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS || !pointer)
        return result;
    fake_memory_lock();
    range = fake_range_at(pointer);
    if (range && (range->kind == FAKE_PLAIN || range->kind == FAKE_MANAGED || range->kind == FAKE_POOLED))
        fake_range_end(range);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    fake_pools_settle();
    return result;
}

/* Ending a range moves others, so a walk may miss some. Walk until a walk finds none. */
void fake_ranges_end(bool (*is_meant)(const struct fake_range *range, const void *whose), const void *whose)
{
    bool is_complete = false;

    while (!is_complete) {
        is_complete = true;
        for (struct fake_range *range = fake_range_next(NULL); range; range = fake_range_next(range)) {
            if (!is_meant(range, whose))
                continue;
            fake_range_end(range);
            is_complete = false;
        }
    }
}

static bool is_of_context(const struct fake_range *range, const void *context)
{
    return range->context == context;
}

void fake_memory_forget(CUcontext context)
{
    fake_memory_lock();
    fake_ranges_end(is_of_context, context);
    fake_arrays_forget(context);
    if (context->is_primary)
        fake_pools_forget(context->ordinal);
    fake_memory_unlock();
    while (context->module_bytes)
        fake_module_give(context);
}

/* Return what loading a module takes, in bytes. */
static uint64_t module_bytes(void)
{
    return fake_setting("FAKE_DRIVER_MODULE_KIB", 16) << 10;
}

CUresult fake_module_take(CUcontext context)
{
    if (!hw_code_take(context->physical, module_bytes()))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_lock();
    context->module_bytes += module_bytes();
    fake_memory_unlock();
    return CUDA_SUCCESS;
}

void fake_module_give(CUcontext context)
{
    bool is_there;

    fake_memory_lock();
    is_there = context->module_bytes >= module_bytes();
    if (is_there)
        context->module_bytes -= module_bytes();
    fake_memory_unlock();
    if (is_there)
        hw_code_give(context->physical, module_bytes());
}

/* Either pointer may be NULL. Source: HAMi-core pull request 322, on driver 580. */
API CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    uint64_t seen_total, seen_used;
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    hw_memory_seen(context->physical, &seen_total, &seen_used);
    if (total)
        *total = seen_total;
    if (available)
        *available = seen_total - seen_used;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetInfo(unsigned int *available, unsigned int *total)
{
    size_t wide_available, wide_total;
    CUresult result = available && total ? cuMemGetInfo_v2(&wide_available, &wide_total) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS) {
        *available = wide_available > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_available;
        *total = wide_total > UINT32_MAX ? UINT32_MAX : (unsigned int)wide_total;
    }
    return result;
}

API CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    return allocate(pointer, bytes);
}

API CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    return allocate_low(pointer, bytes);
}

/* Rows begin at multiples of 512 bytes, which cuDeviceGetAttribute calls the texture alignment. */
static size_t pitch_of(size_t width, size_t height, unsigned int element_bytes)
{
    bool is_element = element_bytes == 4 || element_bytes == 8 || element_bytes == 16;

    return width && height && is_element ? (width + HW_UNIT_BYTES - 1) & ~(HW_UNIT_BYTES - 1) : 0;
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element_bytes)
{
    size_t found = pitch_of(width, height, element_bytes);
    CUresult result;

    if (!pitch || !found || height > SIZE_MAX / found)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate(pointer, found * height);
    if (result == CUDA_SUCCESS)
        *pitch = found;
    return result;
}

API CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                             unsigned int element_bytes)
{
    size_t found = pitch_of(width, height, element_bytes);
    CUresult result;

    if (!pitch || !found)
        return CUDA_ERROR_INVALID_VALUE;
    result = allocate_low(pointer, found * height);
    if (result == CUDA_SUCCESS)
        *pitch = (unsigned int)found;
    return result;
}

API CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    return release(pointer);
}

API CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    return release(pointer);
}
