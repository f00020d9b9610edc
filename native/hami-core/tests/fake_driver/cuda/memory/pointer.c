/*
 * The attributes of pointers.
 */
#include <string.h>

#include "cuda/memory/memory.h"

/* CUpointer_attribute */
enum {
    CONTEXT = 1,
    MEMORY_TYPE = 2,
    DEVICE_POINTER = 3,
    HOST_POINTER = 4,
    BUFFER_ID = 7,
    IS_MANAGED = 8,
    DEVICE_ORDINAL = 9,
    RANGE_START = 11,
    RANGE_SIZE = 12,
    IS_MAPPED = 13,
    POOL = 17
};

enum { MEMORY_TYPE_HOST = 1, MEMORY_TYPE_DEVICE = 2 };

/* `range` is a copy. Returns false for attributes that are not modelled. */
static bool write_attribute(void *value, int attribute, const struct fake_range *range, CUdeviceptr pointer)
{
    bool is_host = range->kind == FAKE_HOST;

    switch (attribute) {
    case CONTEXT:
        *(CUcontext *)value = range->context;
        return true;
    case MEMORY_TYPE:
        *(unsigned int *)value = is_host ? MEMORY_TYPE_HOST : MEMORY_TYPE_DEVICE;
        return true;
    case DEVICE_POINTER:
        *(CUdeviceptr *)value = pointer;
        return true;
    case HOST_POINTER:
        *(CUdeviceptr *)value = pointer;
        return is_host || range->kind == FAKE_MANAGED;
    case BUFFER_ID:
    case RANGE_START:
        *(CUdeviceptr *)value = range->address;
        return true;
    case IS_MANAGED:
        *(unsigned int *)value = range->kind == FAKE_MANAGED;
        return true;
    case DEVICE_ORDINAL:
        *(int *)value = fake_ordinal(range->charge.physical);
        return true;
    case RANGE_SIZE:
        *(size_t *)value = range->bytes;
        return true;
    case IS_MAPPED:
        *(unsigned int *)value = 1;
        return true;
    case POOL:
        *(CUmemoryPool *)value = range->kind == FAKE_POOLED ? range->owner : NULL;
        return true;
    default:
        return false;
    }
}

static bool look_up(CUdeviceptr pointer, struct fake_range *copy)
{
    const struct fake_range *range;

    fake_memory_lock();
    range = fake_range_around(pointer);
    *copy = range ? *range : (struct fake_range){.kind = FAKE_EMPTY};
    if (range && range->kind == FAKE_POOLED)
        copy->charge.physical = fake_physical(fake_pool_ordinal(range->owner));
    fake_memory_unlock();
    return range != NULL;
}

API CUresult cuPointerGetAttribute(void *value, int attribute, CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range range;

    if (result != CUDA_SUCCESS)
        return result;
    if (!value || !look_up(pointer, &range) || !write_attribute(value, attribute, &range, pointer))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* For a pointer that CUDA did not allocate every attribute is 0. */
API CUresult cuPointerGetAttributes(unsigned int count, int *attributes, void **values, CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range range;
    bool is_known;

    if (result != CUDA_SUCCESS)
        return result;
    if (!count || !attributes || !values)
        return CUDA_ERROR_INVALID_VALUE;
    is_known = look_up(pointer, &range);
    for (unsigned int index = 0; index < count; index++) {
        bool is_narrow = attributes[index] == MEMORY_TYPE || attributes[index] == IS_MANAGED || attributes[index] == IS_MAPPED;

        if (attributes[index] == DEVICE_ORDINAL && !is_known)
            *(int *)values[index] = -2;
        else if (!is_known || !write_attribute(values[index], attributes[index], &range, pointer))
            memset(values[index], 0, is_narrow ? sizeof(unsigned int) : sizeof(void *));
    }
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range range;

    if (result != CUDA_SUCCESS)
        return result;
    if (!look_up(pointer, &range))
        return CUDA_ERROR_NOT_FOUND;
    if (base)
        *base = range.address;
    if (bytes)
        *bytes = range.bytes;
    return CUDA_SUCCESS;
}

API CUresult cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *bytes, CUdeviceptr_v1 pointer)
{
    CUdeviceptr wide;
    size_t wide_bytes;
    CUresult result = cuMemGetAddressRange_v2(&wide, &wide_bytes, pointer);

    if (result == CUDA_SUCCESS && base)
        *base = (CUdeviceptr_v1)wide;
    if (result == CUDA_SUCCESS && bytes)
        *bytes = (unsigned int)wide_bytes;
    return result;
}
