/*
 * Memory of another programming interface, which has taken it already. Here it is only a handle.
 */
#include <stdlib.h>

#include "cuda/memory/memory.h"

struct CUextMemory_st {
    unsigned long long bytes;
};

API CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!memory || !description || !description->size)
        return CUDA_ERROR_INVALID_VALUE;
    *memory = malloc(sizeof(**memory));
    if (!*memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*memory)->bytes = description->size;
    return CUDA_SUCCESS;
}

API CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    free(memory);
    return memory ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct buffer {
    unsigned long long offset, bytes;
    unsigned int flags;
};

/* The buffer has an address of its own, which cuMemFree gives back. It takes nothing. */
EXTRA(cuExternalMemoryGetMappedBuffer, CUdeviceptr *pointer, CUexternalMemory memory, const struct buffer *buffer)
{
    struct fake_range range = {.kind = FAKE_PLAIN, .charge = {.physical = -1}};
    CUresult result = fake_current(&range.context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!pointer || !memory || !buffer || !buffer->bytes || buffer->offset + buffer->bytes > memory->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    range.bytes = buffer->bytes;
    fake_memory_lock();
    result = fake_range_start(pointer, range);
    fake_memory_unlock();
    return result;
}
