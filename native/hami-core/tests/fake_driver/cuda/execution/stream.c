/*
 * Streams of the fake driver: making them, their properties, host functions on them, and waiting for them.
 */
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "cuda/execution/execution.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for the lists of streams */

static CUstream new_stream(struct fake_execution *execution, unsigned int flags, int priority, int thread)
{
    CUstream stream = calloc(1, sizeof(*stream));

    if (!stream)
        return NULL;
    stream->execution = execution;
    stream->flags = flags;
    stream->priority = priority;
    stream->thread = thread;
    stream->held_end = &stream->held;
    pthread_mutex_lock(&mutex);
    stream->next = execution->streams;
    execution->streams = stream;
    pthread_mutex_unlock(&mutex);
    return stream;
}

/* Return the calling thread's default stream. A thread that ended leaves its stream to the next one with the same number. */
static CUstream thread_stream(struct fake_execution *execution)
{
    static _Thread_local CUstream last;
    int thread = gettid();
    CUstream stream;

    if (last && last->execution == execution)
        return last;
    pthread_mutex_lock(&mutex);
    stream = execution->streams;
    while (stream && stream->thread != thread)
        stream = stream->next;
    pthread_mutex_unlock(&mutex);
    last = stream ? stream : new_stream(execution, CU_STREAM_DEFAULT, 0, thread);
    return last;
}

CUresult fake_stream(CUstream handle, CUstream *stream)
{
    struct fake_execution *execution;
    CUcontext context;
    CUresult result;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *stream = handle;
        return fake_check();
    }
    result = fake_current(&context);
    if (result == CUDA_SUCCESS)
        result = fake_execution_of(context, &execution);
    if (result != CUDA_SUCCESS)
        return result;
    *stream = handle == CU_STREAM_PER_THREAD ? thread_stream(execution) : &execution->legacy;
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void fake_streams_each(struct fake_execution *execution, const struct fake_capture *capture, void (*leave)(CUstream stream))
{
    pthread_mutex_lock(&mutex);
    for (CUstream stream = execution->streams; stream; stream = stream->next)
        if (stream->capture == capture)
            leave(stream);
    pthread_mutex_unlock(&mutex);
}

EXTRA(cuStreamCreateWithPriority, CUstream *stream, unsigned int flags, int priority)
{
    struct fake_execution *execution;
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        result = fake_execution_of(context, &execution);
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || flags > CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *stream = new_stream(execution, flags, priority, 0);
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    return cuStreamCreateWithPriority(stream, flags, 0);
}

/* What the stream has queued still runs. Its memory is kept only while it is held. */
API CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUstream *link;
    bool is_held;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_lock(stream->execution);
    is_held = stream->is_held;
    fake_unlock(stream->execution);
    pthread_mutex_lock(&mutex);
    link = &stream->execution->streams;
    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    pthread_mutex_unlock(&mutex);
    if (!is_held)
        free(stream);
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result == CUDA_SUCCESS)
        *context = stream->execution->owner;
    return result;
}

API CUresult cuStreamGetCtx_ptsz(CUstream handle, CUcontext *context)
{
    return cuStreamGetCtx(FOR_THREAD(handle), context);
}

EXTRA(cuStreamGetFlags, CUstream handle, unsigned int *flags)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result == CUDA_SUCCESS)
        *flags = stream->flags;
    return result;
}

EXTRA(cuStreamGetFlags_ptsz, CUstream handle, unsigned int *flags)
{
    return cuStreamGetFlags(FOR_THREAD(handle), flags);
}

/* Those of NVIDIA's GPUs: a lower number is a greater priority. */
EXTRA(cuCtxGetStreamPriorityRange, int *least, int *greatest)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (least)
        *least = 0;
    if (greatest)
        *greatest = -5;
    return CUDA_SUCCESS;
}

EXTRA(cuStreamGetPriority, CUstream handle, int *priority)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result == CUDA_SUCCESS)
        *priority = stream->priority;
    return result;
}

EXTRA(cuStreamGetPriority_ptsz, CUstream handle, int *priority)
{
    return cuStreamGetPriority(FOR_THREAD(handle), priority);
}

/* Host functions */

EXTRA(cuLaunchHostFunc, CUstream handle, fake_host_function function, void *data)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_enqueue(stream, (struct fake_step){.kind = FAKE_CALL, .function = function, .data = data});
}

EXTRA(cuLaunchHostFunc_ptsz, CUstream handle, fake_host_function function, void *data)
{
    return cuLaunchHostFunc(FOR_THREAD(handle), function, data);
}

EXTRA(cuLaunchHostFunc_v2, CUstream handle, fake_host_function function, void *data, unsigned int sync_mode)
{
    (void)sync_mode;
    return cuLaunchHostFunc(handle, function, data);
}

EXTRA(cuLaunchHostFunc_v2_ptsz, CUstream handle, fake_host_function function, void *data, unsigned int sync_mode)
{
    return cuLaunchHostFunc_v2(FOR_THREAD(handle), function, data, sync_mode);
}

EXTRA(cuStreamAddCallback, CUstream handle, fake_callback callback, void *data, unsigned int flags)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!callback || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return fake_enqueue(stream, (struct fake_step){.kind = FAKE_CALL, .callback = callback, .data = data});
}

EXTRA(cuStreamAddCallback_ptsz, CUstream handle, fake_callback callback, void *data, unsigned int flags)
{
    return cuStreamAddCallback(FOR_THREAD(handle), callback, data, flags);
}

/* Waiting */

API CUresult cuStreamQuery(CUstream handle)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);
    bool is_done;

    if (result == CUDA_SUCCESS)
        result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : fake_capture_check();
    if (result != CUDA_SUCCESS)
        return result;
    fake_lock(stream->execution);
    is_done = !stream->is_held && fake_reached(stream->execution) >= fake_stream_at(stream);
    fake_unlock(stream->execution);
    return is_done ? CUDA_SUCCESS : fake_not_ready();
}

EXTRA(cuStreamQuery_ptsz, CUstream handle)
{
    return cuStreamQuery(FOR_THREAD(handle));
}

API CUresult cuStreamSynchronize(CUstream handle)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result == CUDA_SUCCESS)
        result = stream->capture ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : fake_capture_check();
    if (result == CUDA_SUCCESS)
        result = fake_drain(stream->execution, stream);
    return result;
}

EXTRA(cuStreamSynchronize_ptsz, CUstream handle)
{
    return cuStreamSynchronize(FOR_THREAD(handle));
}

API CUresult cuCtxSynchronize(void)
{
    struct fake_execution *execution;
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        result = fake_capture_check();
    if (result == CUDA_SUCCESS)
        result = fake_execution_of(context, &execution);
    if (result == CUDA_SUCCESS)
        result = fake_drain(execution, NULL);
    return result;
}

EXTRA(cuCtxSynchronize_v2, CUcontext context)
{
    struct fake_execution *execution;
    CUresult result = context ? fake_execution_of(context, &execution) : cuCtxSynchronize();

    if (context && result == CUDA_SUCCESS)
        result = fake_drain(execution, NULL);
    return result;
}
