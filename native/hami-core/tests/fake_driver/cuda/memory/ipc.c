/*
 * Plain memory that another process opens. It is charged once, and free when no process holds it.
 */
#include <string.h>

#include "cuda/memory/memory.h"

struct ipc_handle {
    uint64_t token;
    uint64_t maker; /* CUDA refuses to open a handle in the process that made it */
};

_Static_assert(sizeof(struct ipc_handle) <= sizeof(CUipcMemHandle), "the handle has room for ours");

API CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
    struct ipc_handle ours = {.maker = hw_self()};
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_around(pointer);
    if (!handle || !range || range->kind != FAKE_PLAIN)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (!fake_charge_share(&range->charge))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        ours.token = range->charge.token;
    fake_memory_unlock();
    if (result == CUDA_SUCCESS) {
        memset(handle, 0, sizeof(*handle));
        memcpy(handle, &ours, sizeof(ours));
    }
    return result;
}

static struct fake_range *opened(uint64_t token)
{
    struct fake_range *range = fake_range_next(NULL);

    while (range && (range->kind != FAKE_IPC || range->charge.token != token))
        range = fake_range_next(range);
    return range;
}

static CUresult open_new(CUdeviceptr *pointer, uint64_t token, CUcontext context)
{
    struct fake_range range = {.kind = FAKE_IPC, .context = context, .references = 1, .charge = {.token = token}};

    if (!hw_block_hold(token, &range.charge.physical, &range.charge.bytes))
        return CUDA_ERROR_INVALID_VALUE;
    range.bytes = range.charge.bytes;
    return fake_range_start(pointer, range);
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    struct ipc_handle ours;
    CUcontext context;
    CUresult result = fake_current(&context);
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&ours, &handle, sizeof(ours));
    if (!pointer || flags != 1 || !ours.token) /* CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS */
        return CUDA_ERROR_INVALID_VALUE;
    if (ours.maker == hw_self())
        return CUDA_ERROR_INVALID_CONTEXT;
    fake_memory_lock();
    range = opened(ours.token);
    if (range) {
        range->references++;
        *pointer = range->address;
    } else {
        result = open_new(pointer, ours.token, context);
    }
    fake_memory_unlock();
    return result;
}

API CUresult cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
    return cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr pointer)
{
    CUresult result = fake_check();
    struct fake_range *range;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    range = fake_range_at(pointer);
    if (!range || range->kind != FAKE_IPC)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--range->references == 0)
        fake_range_end(range);
    fake_memory_unlock();
    return result;
}
