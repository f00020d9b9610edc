/*
 * Pinned host memory. No device is involved, and the device address is the host's.
 */
#include <stdlib.h>

#include "cuda/memory/memory.h"

/* Not one of CU_MEMHOSTALLOC_*: the memory belongs to the program. */
#define REGISTERED 0x80000000u

static CUresult add(void *pointer, size_t bytes, unsigned int flags, CUcontext context)
{
    struct fake_range range = {.address = (uint64_t)(uintptr_t)pointer, .bytes = bytes, .kind = FAKE_HOST, .flags = flags};
    CUresult result = CUDA_SUCCESS;

    range.context = context;
    range.charge.physical = -1;
    fake_memory_lock();
    if (fake_range_at(range.address))
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else if (!fake_range_insert(range))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    fake_memory_unlock();
    return result;
}

static CUresult allocate(void **pointer, size_t bytes, unsigned int flags)
{
    CUcontext context;
    CUresult result = fake_current(&context);
    void *fresh;

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    fresh = malloc(bytes);
    result = fresh ? add(fresh, bytes, flags, context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *pointer = fresh;
    else
        free(fresh);
    return result;
}

API CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
    return flags > 7 ? CUDA_ERROR_INVALID_VALUE : allocate(pointer, bytes, flags);
}

API CUresult cuMemAllocHost_v2(void **pointer, size_t bytes)
{
    return allocate(pointer, bytes, 0);
}

API CUresult cuMemAllocHost(void **pointer, unsigned int bytes)
{
    return allocate(pointer, bytes, 0);
}

static CUresult remove_host(void *pointer, bool is_registered)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_at((uint64_t)(uintptr_t)pointer);
    if (range && range->kind == FAKE_HOST && (range->flags & REGISTERED) == (is_registered ? REGISTERED : 0))
        fake_range_end(range);
    else
        result = is_registered ? CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    fake_memory_unlock();
    return result;
}

API CUresult cuMemFreeHost(void *pointer)
{
    CUresult result = pointer ? remove_host(pointer, false) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        free(pointer);
    return result;
}

API CUresult cuMemHostRegister_v2(void *pointer, size_t bytes, unsigned int flags)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    return pointer && bytes ? add(pointer, bytes, flags | REGISTERED, context) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemHostRegister(void *pointer, size_t bytes, unsigned int flags)
{
    return cuMemHostRegister_v2(pointer, bytes, flags);
}

API CUresult cuMemHostUnregister(void *pointer)
{
    return remove_host(pointer, true);
}

EXTRA(cuMemHostGetDevicePointer_v2, CUdeviceptr *pointer, void *host, unsigned int flags)
{
    struct fake_range *range;

    if (!pointer || !host || flags)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    range = fake_range_around((uint64_t)(uintptr_t)host);
    fake_memory_unlock();
    *pointer = (uint64_t)(uintptr_t)host;
    return range && range->kind == FAKE_HOST ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}

EXTRA(cuMemHostGetFlags, unsigned int *flags, void *host)
{
    struct fake_range *range;

    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    fake_memory_lock();
    range = fake_range_at((uint64_t)(uintptr_t)host);
    if (range && range->kind == FAKE_HOST)
        *flags = range->flags & ~REGISTERED;
    fake_memory_unlock();
    return range && range->kind == FAKE_HOST ? fake_check() : CUDA_ERROR_INVALID_VALUE;
}
