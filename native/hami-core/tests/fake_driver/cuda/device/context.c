/*
 * Contexts: the primary one of each device and those that programs make, the current one of each thread, and what they take.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/device/mps.h"
#include "cuda/fake.h"
#include "hardware/compute_mode.h"
#include "hardware/faults.h"

enum { CONTEXT_STACK = 32 };

/* What cuCtxSetLimit may raise: device memory that a context sets aside. A new context has the included sizes. */
#define PRINTF_FIFO_BYTES HW_MIB
#define MALLOC_HEAP_BYTES (8 * HW_MIB)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct CUctx_st primary[HW_DEVICES_MAX];
static _Thread_local CUcontext stack[CONTEXT_STACK];
static _Thread_local int depth;

void fake_context_prepare(int ordinal, int physical)
{
    primary[ordinal] = (struct CUctx_st){.ordinal = ordinal, .physical = physical, .is_primary = true};
}

CUresult fake_current(CUcontext *context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!depth || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
    if (atomic_load(&(*context)->is_destroyed))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return fault_is_lost((*context)->physical) ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult push(CUcontext context)
{
    if (depth == CONTEXT_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

/* The call that makes a context returns late: others may see the context before. */
static void come_back_late(void)
{
    uint64_t ms = fake_setting("FAKE_DRIVER_CONTEXT_MS", 0);

    if (ms)
        nanosleep(&(struct timespec){(time_t)(ms / 1000), (long)(ms % 1000) * 1000000L}, NULL);
}

/* Take what a context needs of a device. */
static CUresult take(int physical)
{
    /* For clients of MPS their server has the device. */
    bool is_open = fake_mps_client().number != 0 || hw_compute_is_open(physical);
    CUresult result = is_open ? fake_mps_open(hw_device(physical)->uuid) : CUDA_ERROR_DEVICE_UNAVAILABLE;

    if (result == CUDA_SUCCESS && !hw_context_take(physical)) {
        fake_mps_close(hw_device(physical)->uuid);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult retain(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;
    bool is_first;

    pthread_mutex_lock(&mutex);
    is_first = context->references == 0;
    if (is_first)
        result = take(context->physical);
    if (result == CUDA_SUCCESS)
        context->references++;
    pthread_mutex_unlock(&mutex);
    if (is_first && result == CUDA_SUCCESS)
        come_back_late();
    return result;
}

static void empty(CUcontext context)
{
    fake_execution_forget(context);
    fake_memory_forget(context);
    for (int limit = CU_LIMIT_PRINTF_FIFO_SIZE; limit <= CU_LIMIT_MALLOC_HEAP_SIZE; limit++) {
        hw_memory_give(context->physical, context->set_aside_bytes[limit]);
        context->set_aside_bytes[limit] = 0;
    }
}

static CUresult release(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (context->references == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--context->references == 0) {
        empty(context);
        hw_context_give(context->physical);
        fake_mps_close(hw_device(context->physical)->uuid);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* Primary contexts */

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = fake_check_device(device, context);

    if (result == CUDA_SUCCESS)
        result = retain(&primary[device]);
    if (result == CUDA_SUCCESS)
        *context = &primary[device];
    return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = fake_check_device(device, &device);

    return result == CUDA_SUCCESS ? release(&primary[device]) : result;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = fake_check_device(device, &device);

    if (result == CUDA_SUCCESS)
        empty(&primary[device]);
    return result;
}

API CUresult cuDevicePrimaryCtxReset(CUdevice device)
{
    return cuDevicePrimaryCtxReset_v2(device);
}

EXTRA(cuDevicePrimaryCtxSetFlags_v2, CUdevice device, unsigned int flags)
{
    CUresult result = fake_check_device(device, &device);

    pthread_mutex_lock(&mutex);
    if (result == CUDA_SUCCESS)
        primary[device].flags = flags;
    pthread_mutex_unlock(&mutex);
    return result;
}

EXTRA(cuDevicePrimaryCtxSetFlags, CUdevice device, unsigned int flags)
{
    return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = fake_check_device(device, flags);

    if (result != CUDA_SUCCESS || !active)
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&mutex);
    *flags = primary[device].flags;
    *active = primary[device].references > 0;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

/* Contexts made by the program */

static CUresult create(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult result = fake_check_device(device, context);
    CUcontext fresh;

    if (result != CUDA_SUCCESS)
        return result;
    fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = (struct CUctx_st){.ordinal = device, .physical = fake_physical(device), .flags = flags};
    result = retain(fresh);
    if (result == CUDA_SUCCESS) {
        result = push(fresh);
        if (result != CUDA_SUCCESS)
            release(fresh);
    }
    if (result == CUDA_SUCCESS)
        *context = fresh;
    else
        free(fresh);
    return result;
}

API CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int count, unsigned int flags, CUdevice device)
{
    (void)affinities;
    (void)count;
    return create(context, flags, device);
}

API CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
{
    (void)params;
    return create(context, flags, device);
}

/*
 * A destroyed context that is current is popped. Below the top it stays on the stack, and so it does for other threads: then calls
 * fail with CUDA_ERROR_CONTEXT_IS_DESTROYED. So it is not freed.
 * Source: CUDA Driver API, cuCtxDestroy.
 */
API CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context || context->is_primary || atomic_load(&context->is_destroyed))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (depth && stack[depth - 1] == context)
        depth--;
    context->references = 1;
    release(context);
    atomic_store(&context->is_destroyed, true);
    return CUDA_SUCCESS;
}

EXTRA(cuProfilerStart, void)
{
    CUcontext context;

    return fake_current(&context);
}

EXTRA(cuProfilerStop, void)
{
    CUcontext context;

    return fake_current(&context);
}

/* Such a context ends when it is destroyed, or detached once more than it was attached. */

API CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    CUresult result = context && !flags ? fake_current(context) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS && (*context)->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    return result == CUDA_SUCCESS ? retain(*context) : result;
}

API CUresult cuCtxDetach(CUcontext context)
{
    if (!context || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    return context->references > 1 ? release(context) : cuCtxDestroy_v2(context);
}

API CUresult cuCtxDestroy(CUcontext context)
{
    return cuCtxDestroy_v2(context);
}

/* The current context */

API CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = fake_check();

    if (result == CUDA_SUCCESS)
        *context = depth ? stack[depth - 1] : NULL;
    return result;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (depth)
        depth--;
    return context ? push(context) : CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    return context ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUcontext top;
    CUresult result = fake_current(&top);

    if (result != CUDA_SUCCESS)
        return result;
    depth--;
    if (context)
        *context = top;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        *device = context->ordinal;
    return result;
}

EXTRA(cuCtxGetDevice_v2, CUdevice *device, CUcontext context)
{
    CUresult result = context ? fake_check() : fake_current(&context);

    if (result == CUDA_SUCCESS)
        *device = context->ordinal;
    return result;
}

EXTRA(cuCtxGetFlags, unsigned int *flags)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        *flags = context->flags;
    return result;
}

EXTRA(cuCtxGetApiVersion, CUcontext context, unsigned int *version)
{
    (void)context;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}

/* What exceeds a new context's size is taken at once, in whole granules, and kept until the context ends. */
static CUresult set_aside(CUcontext context, int limit, uint64_t included_bytes, size_t value)
{
    uint64_t *bytes = &context->set_aside_bytes[limit];
    uint64_t wanted =
        value > included_bytes ? (value - included_bytes + HW_GRANULE_BYTES - 1) / HW_GRANULE_BYTES * HW_GRANULE_BYTES : 0;

    if (wanted <= *bytes)
        return CUDA_SUCCESS;
    if (!hw_memory_take(context->physical, wanted))
        return CUDA_ERROR_OUT_OF_MEMORY;
    hw_memory_give(context->physical, *bytes);
    *bytes = wanted;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&mutex);
    if (limit == CU_LIMIT_MALLOC_HEAP_SIZE)
        result = set_aside(context, limit, MALLOC_HEAP_BYTES, value);
    else if (limit == CU_LIMIT_PRINTF_FIFO_SIZE)
        result = set_aside(context, limit, PRINTF_FIFO_BYTES, value);
    else if ((int)limit < 0 || (int)limit > 6)
        result = CUDA_ERROR_UNSUPPORTED_LIMIT;
    pthread_mutex_unlock(&mutex);
    return result;
}
