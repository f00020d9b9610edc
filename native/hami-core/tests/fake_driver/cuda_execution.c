/*
 * Modules, streams, events, launches and graphs of the fake driver.
 *
 * A kernel is a duration: the function `busy_<microseconds>` of any module keeps the device busy that long, whatever its grid; the
 * function `busy_0` costs nothing and never touches the timeline. Work queues on the device's one FIFO timeline behind its stream's
 * earlier work. A launch returns at once unless its stream has 1024 launches outstanding; then it waits, as the driver does.
 * Capture turns launches into a graph; launching that graph queues their sum.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_fake.h"
#include "oracle.h"

enum { QUEUE = 1024 };

struct CUmod_st {
    CUcontext context;
    struct CUfunc_st *functions;
};

struct CUfunc_st {
    uint64_t duration_ns;
    struct CUfunc_st *next;
};

struct CUstream_st {
    CUcontext context;
    uint64_t last_end_ns;
    uint64_t queued;
    uint64_t ends_ns[QUEUE];
    CUgraph capturing;
};

struct CUevent_st {
    uint64_t at_ns;
};

struct CUgraph_st {
    uint64_t duration_ns;
    struct fake_graph_memory *memory;
};

struct CUgraphExec_st {
    uint64_t duration_ns;
    struct fake_graph_memory *memory;
    bool is_freed_first;
};

static struct CUstream_st default_streams[HW_DEVICES_MAX];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

/* The default streams, legacy and per-thread, are one stream a device. */
static CUresult resolve(CUstream handle, CUstream *stream)
{
    CUcontext context;
    CUresult result;

    if (handle && handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
        *stream = handle;
        return fake_check();
    }
    result = fake_current(&context);
    if (result != CUDA_SUCCESS)
        return result;
    *stream = &default_streams[context->ordinal];
    (*stream)->context = context;
    return CUDA_SUCCESS;
}

/* Modules */

API CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!module || !image)
        return CUDA_ERROR_INVALID_VALUE;
    *module = calloc(1, sizeof(**module));
    result = *module ? fake_module_take(context) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        (*module)->context = context;
    else
        free(*module);
    return result;
}

EXTRA(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    (void)count;
    (void)options;
    (void)values;
    return cuModuleLoadData(module, image);
}

API CUresult cuModuleUnload(CUmodule module)
{
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    while (module->functions) {
        struct CUfunc_st *next = module->functions->next;

        free(module->functions);
        module->functions = next;
    }
    fake_module_give(module->context);
    free(module);
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct CUfunc_st *fresh;

    if (!function || !module || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (strncmp(name, "busy_", 5) != 0)
        return CUDA_ERROR_NOT_FOUND;
    fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = (struct CUfunc_st){strtoull(name + 5, NULL, 10) * 1000u, module->functions};
    module->functions = fresh;
    *function = fresh;
    return CUDA_SUCCESS;
}

API void fake_set_duration(CUfunction function, uint64_t duration_ns)
{
    function->duration_ns = duration_ns;
}

API uint64_t fake_truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns)
{
    static _Thread_local struct hw_process_use use[HW_PROCESSES_MAX];
    int count = pid ? hw_processes(device, use, HW_PROCESSES_MAX) : 0;
    uint64_t busy = pid ? 0 : hw_busy_ns(device, 0, from_ns, to_ns);

    for (int index = 0; index < count; index++)
        if ((uint64_t)use[index].pid == pid)
            busy += hw_busy_ns(device, use[index].serial, from_ns, to_ns);
    return busy;
}

/* Streams */

API CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    *stream = calloc(1, sizeof(**stream));
    if (!*stream)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*stream)->context = context;
    return CUDA_SUCCESS;
}

API CUresult cuStreamDestroy_v2(CUstream stream)
{
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return CUDA_SUCCESS;
}

API CUresult cuStreamGetCtx(CUstream handle, CUcontext *context)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result == CUDA_SUCCESS)
        *context = stream->context;
    return result;
}

API CUresult cuStreamGetCtx_ptsz(CUstream handle, CUcontext *context)
{
    return cuStreamGetCtx(handle, context);
}

API CUresult cuStreamQuery(CUstream handle)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    return hw_now_ns() >= stream->last_end_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuStreamSynchronize(CUstream handle)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result == CUDA_SUCCESS)
        sleep_until(stream->last_end_ns);
    fake_pools_settle();
    return result;
}

API CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        sleep_until(context->last_end_ns);
    fake_pools_settle();
    return result;
}

/* Events carry the time the device reaches them. */

API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUresult result = fake_check();

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    *event = calloc(1, sizeof(**event));
    return *event ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    free(event);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream handle)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);
    uint64_t now = hw_now_ns();

    if (result != CUDA_SUCCESS)
        return result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    event->at_ns = stream->last_end_ns > now ? stream->last_end_ns : now;
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord_ptsz(CUevent event, CUstream handle)
{
    return cuEventRecord(event, handle);
}

API CUresult cuEventQuery(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    return hw_now_ns() >= event->at_ns ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API CUresult cuEventSynchronize(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    sleep_until(event->at_ns);
    fake_pools_settle();
    return CUDA_SUCCESS;
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    if (!milliseconds || !start || !end || !start->at_ns || !end->at_ns)
        return CUDA_ERROR_INVALID_HANDLE;
    if (hw_now_ns() < end->at_ns)
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float)((double)((int64_t)(end->at_ns - start->at_ns)) / 1e6);
    return CUDA_SUCCESS;
}

API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->at_ns > stream->last_end_ns)
        stream->last_end_ns = event->at_ns;
    return CUDA_SUCCESS;
}

/* Launches */

static CUresult queue(CUstream stream, uint64_t duration_ns)
{
    uint64_t oldest_ns;

    if (stream->capturing) {
        stream->capturing->duration_ns += duration_ns;
        return CUDA_SUCCESS;
    }
    if (duration_ns == 0)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    oldest_ns = stream->queued >= QUEUE ? stream->ends_ns[stream->queued % QUEUE] : 0;
    pthread_mutex_unlock(&mutex);
    if (oldest_ns > hw_now_ns())
        sleep_until(oldest_ns);
    pthread_mutex_lock(&mutex);
    stream->last_end_ns = hw_timeline_append(stream->context->physical, stream->last_end_ns, duration_ns);
    stream->ends_ns[stream->queued++ % QUEUE] = stream->last_end_ns;
    if (stream->last_end_ns > stream->context->last_end_ns)
        stream->context->last_end_ns = stream->last_end_ns;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

static CUresult launch(CUfunction function, unsigned int grid, unsigned int block, CUstream handle)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!grid || !block)
        return CUDA_ERROR_INVALID_VALUE;
    return queue(stream, function->duration_ns);
}

API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                            CUstream stream, void **params, void **extra)
{
    (void)shared_bytes;
    (void)params;
    (void)extra;
    return launch(function, grid_x && grid_y && grid_z, block_x && block_y && block_z, stream);
}

API CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                 CUstream stream, void **params, void **extra)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes,
                          stream ? stream : CU_STREAM_PER_THREAD, params, extra);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    if (!config)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(function, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX, config->blockDimY,
                          config->blockDimZ, config->sharedMemBytes, config->hStream, params, extra);
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    return cuLaunchKernelEx(config, function, params, extra);
}

API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                       unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                       unsigned int shared_bytes, CUstream stream, void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, NULL);
}

API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                            unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                            unsigned int shared_bytes, CUstream stream, void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, NULL);
}

API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    CUresult result = launches && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    (void)flags;
    for (unsigned int index = 0; result == CUDA_SUCCESS && index < count; index++)
        result = launch(launches[index].function, launches[index].gridDimX, launches[index].blockDimX, launches[index].hStream);
    return result;
}

API CUresult cuLaunch(CUfunction function)
{
    return launch(function, 1, 1, NULL);
}

API CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch(function, width > 0 && height > 0, 1, NULL);
}

API CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch(function, width > 0 && height > 0, 1, stream);
}

/* Graphs */

struct fake_graph_memory **fake_graph_memory_of(CUgraph graph)
{
    return &graph->memory;
}

CUgraph fake_capture_of(CUstream handle)
{
    CUstream stream;

    return resolve(handle, &stream) == CUDA_SUCCESS ? stream->capturing : NULL;
}

API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode)
{
    CUresult result = fake_check();

    (void)mode;
    if (result != CUDA_SUCCESS)
        return result;
    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD || stream->capturing)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return cuGraphCreate(&stream->capturing, 0);
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    if (!stream || !graph || !stream->capturing)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = stream->capturing;
    stream->capturing = NULL;
    return CUDA_SUCCESS;
}

API CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result == CUDA_SUCCESS)
        *status = stream->capturing ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return result;
}

API CUresult cuStreamIsCapturing_ptsz(CUstream handle, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(handle, status);
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
    if (!graph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *graph = calloc(1, sizeof(**graph));
    return *graph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuGraphInstantiateWithFlags(CUgraphExec *executable, CUgraph graph, unsigned long long flags)
{
    if (!executable || !graph)
        return CUDA_ERROR_INVALID_VALUE;
    *executable = malloc(sizeof(**executable));
    if (!*executable)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*executable)->duration_ns = graph->duration_ns;
    (*executable)->memory = fake_graph_memory_copy(graph->memory);
    (*executable)->is_freed_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    return CUDA_SUCCESS;
}

API CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle)
{
    CUstream stream;
    CUresult result = resolve(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!executable)
        return CUDA_ERROR_INVALID_VALUE;
    result = fake_graph_memory_launch(executable->memory, executable->is_freed_first);
    return result == CUDA_SUCCESS ? queue(stream, executable->duration_ns) : result;
}

API CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    return cuGraphLaunch(executable, stream ? stream : CU_STREAM_PER_THREAD);
}

API CUresult cuGraphExecDestroy(CUgraphExec executable)
{
    if (executable)
        fake_graph_memory_drop(executable->memory);
    free(executable);
    return CUDA_SUCCESS;
}

API CUresult cuGraphDestroy(CUgraph graph)
{
    if (graph)
        fake_graph_memory_drop(graph->memory);
    free(graph);
    return CUDA_SUCCESS;
}
