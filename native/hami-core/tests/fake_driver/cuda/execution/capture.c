/*
 * Stream capture: calls on a stream become nodes of a graph instead of work.
 *
 * A stream that waits for an event of a capture joins it. During a capture, calls that could depend on work it has not run are
 * forbidden to the threads that its mode names. Such a call fails and invalidates the capture. A capture's memory is never freed,
 * because events keep pointing to it.
 * Source: CUDA C++ Programming Guide, "Stream Capture", and cuThreadExchangeStreamCaptureMode in the Driver API.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda/execution/graph.h"

enum mode { GLOBAL, THREAD_LOCAL, RELAXED };

struct fake_capture {
    CUgraph graph;
    CUstream origin;
    enum mode mode;
    int thread;
    unsigned long long id;
    bool is_spoilt;
    struct fake_capture *next; /* of the active captures */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for captures, their graphs, and where streams are in them */
static struct fake_capture *captures;
static unsigned long long ids;
static _Thread_local enum mode thread_mode = GLOBAL;

CUresult fake_capture_check(void)
{
    CUresult result = CUDA_SUCCESS;

    if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE) || thread_mode == RELAXED)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    for (struct fake_capture *capture = captures; capture; capture = capture->next) {
        bool is_own = capture->thread == gettid();

        if (capture->mode == RELAXED || (!is_own && (capture->mode != GLOBAL || thread_mode != GLOBAL)))
            continue;
        capture->is_spoilt = true;
        result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

/* The legacy default stream waits for every blocking stream, also for one whose work is only captured. */
CUresult fake_capture_check_legacy(CUstream legacy)
{
    CUresult result = CUDA_SUCCESS;

    if (!__atomic_load_n(&captures, __ATOMIC_ACQUIRE))
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    for (struct fake_capture *capture = captures; capture; capture = capture->next)
        if (capture->origin->execution == legacy->execution && !(capture->origin->flags & CU_STREAM_NON_BLOCKING))
            result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    pthread_mutex_unlock(&mutex);
    return result;
}

EXTRA(cuThreadExchangeStreamCaptureMode, int *mode)
{
    enum mode before = thread_mode;

    if (!mode || *mode < GLOBAL || *mode > RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    thread_mode = (enum mode)(*mode);
    *mode = (int)before;
    return CUDA_SUCCESS;
}

/* Take the mutex if the stream is captured. Another thread may end the capture meanwhile. */
static bool lock_captured(CUstream stream)
{
    if (!__atomic_load_n(&stream->capture, __ATOMIC_RELAXED))
        return false;
    pthread_mutex_lock(&mutex);
    if (stream->capture)
        return true;
    pthread_mutex_unlock(&mutex);
    return false;
}

/* What a stream's next node depends on. The functions from here to fake_capture_kernel() need the mutex. */

static CUresult follow(CUgraphNode **tails, size_t *count, const CUgraphNode *more, size_t more_count)
{
    CUgraphNode *grown = realloc(*tails, (*count + more_count + 1) * sizeof(*grown));

    if (!grown)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (more_count)
        memcpy(grown + *count, more, more_count * sizeof(*more));
    *tails = grown;
    *count += more_count;
    return CUDA_SUCCESS;
}

static CUresult add(CUstream stream, const struct CUgraphNode_st *node)
{
    CUgraphNode fresh;
    CUresult result;

    if (stream->capture->is_spoilt)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    result = fake_graph_add(&fresh, stream->capture->graph, stream->tails, stream->tail_count, node);
    stream->tail_count = 0;
    return result == CUDA_SUCCESS ? follow(&stream->tails, &stream->tail_count, &fresh, 1) : result;
}

static CUresult record(CUstream stream, CUevent event)
{
    event->capture = stream->capture;
    event->tail_count = 0;
    return follow(&event->tails, &event->tail_count, stream->tails, stream->tail_count);
}

static CUresult wait_for(CUstream stream, CUevent event)
{
    if (event->capture == stream->capture)
        return follow(&stream->tails, &stream->tail_count, event->tails, event->tail_count);
    stream->capture->is_spoilt = true;
    return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
}

static CUresult add_step(CUstream stream, const struct fake_step *step)
{
    switch (step->kind) {
    case FAKE_RECORD:
        return record(stream, step->event);
    case FAKE_WAIT:
        return wait_for(stream, step->event);
    case FAKE_CALL:
        return add(stream, &(struct CUgraphNode_st){.kind = FAKE_NODE_HOST, .call = *step});
    case FAKE_RUN:
        break;
    }
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

bool fake_capture_kernel(CUstream stream, CUfunction function, CUresult *result)
{
    bool is_captured = lock_captured(stream);

    if (is_captured) {
        *result = add(stream, &(struct CUgraphNode_st){.kind = FAKE_NODE_KERNEL, .params = {.function = function}});
        pthread_mutex_unlock(&mutex);
    }
    return is_captured;
}

bool fake_capture_graph(CUstream stream, CUgraph graph, CUresult *result)
{
    bool is_captured = lock_captured(stream);

    if (is_captured) {
        struct CUgraphNode_st node = {.kind = FAKE_NODE_GRAPH, .child = fake_graph_copy(graph)};

        *result = node.child ? add(stream, &node) : CUDA_ERROR_OUT_OF_MEMORY;
        pthread_mutex_unlock(&mutex);
    }
    return is_captured;
}

bool fake_capture_step(CUstream stream, const struct fake_step *step, CUresult *result)
{
    bool is_captured = lock_captured(stream);

    if (is_captured) {
        *result = add_step(stream, step);
        pthread_mutex_unlock(&mutex);
    }
    return is_captured;
}

static bool is_on(const struct fake_capture *wanted)
{
    const struct fake_capture *capture = captures;

    while (capture && capture != wanted)
        capture = capture->next;
    return capture != NULL;
}

void fake_capture_join(CUstream stream, CUevent event)
{
    if (!event->capture)
        return;
    pthread_mutex_lock(&mutex);
    if (!stream->capture && is_on(event->capture))
        stream->capture = event->capture;
    pthread_mutex_unlock(&mutex);
}

/* Returns false if the stream is captured already. */
static bool begin(CUstream stream, struct fake_capture *capture)
{
    bool is_free;

    pthread_mutex_lock(&mutex);
    is_free = !stream->capture;
    if (is_free) {
        capture->id = ++ids;
        capture->next = captures;
        __atomic_store_n(&captures, capture, __ATOMIC_RELEASE);
        __atomic_store_n(&stream->capture, capture, __ATOMIC_RELAXED);
    }
    pthread_mutex_unlock(&mutex);
    return is_free;
}

/* Calls */

API CUresult cuStreamBeginCapture_v2(CUstream handle, int mode)
{
    struct fake_capture *capture;
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (mode < GLOBAL || mode > RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    capture = calloc(1, sizeof(*capture));
    if (!capture || cuGraphCreate(&capture->graph, 0) != CUDA_SUCCESS) {
        free(capture);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    capture->origin = stream;
    capture->mode = (enum mode)mode;
    capture->thread = gettid();
    if (begin(stream, capture))
        return CUDA_SUCCESS;
    cuGraphDestroy(capture->graph);
    free(capture);
    return CUDA_ERROR_ILLEGAL_STATE;
}

EXTRA(cuStreamBeginCapture_v2_ptsz, CUstream stream, int mode)
{
    return cuStreamBeginCapture_v2(FOR_THREAD(stream), mode);
}

static void leave(CUstream stream)
{
    __atomic_store_n(&stream->capture, NULL, __ATOMIC_RELAXED);
    stream->tail_count = 0;
}

static void end(struct fake_capture *capture)
{
    struct fake_capture **link = &captures;

    pthread_mutex_lock(&mutex);
    while (*link != capture)
        link = &(*link)->next;
    __atomic_store_n(link, capture->next, __ATOMIC_RELEASE);
    fake_streams_each(capture->origin->execution, capture, leave);
    pthread_mutex_unlock(&mutex);
}

API CUresult cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
    struct fake_capture *capture;
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    capture = stream->capture;
    if (!graph || !capture)
        return graph ? CUDA_ERROR_ILLEGAL_STATE : CUDA_ERROR_INVALID_VALUE;
    if (capture->origin != stream)
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    if (capture->mode != RELAXED && capture->thread != gettid())
        return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    end(capture);
    *graph = capture->graph;
    if (!capture->is_spoilt)
        return CUDA_SUCCESS;
    cuGraphDestroy(capture->graph);
    *graph = NULL;
    return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

EXTRA(cuStreamEndCapture_ptsz, CUstream stream, CUgraph *graph)
{
    return cuStreamEndCapture(FOR_THREAD(stream), graph);
}

CUgraph fake_capture_enter(CUstream handle)
{
    CUstream stream;

    return fake_stream(handle, &stream) == CUDA_SUCCESS && lock_captured(stream) ? stream->capture->graph : NULL;
}

void fake_capture_leave(void)
{
    pthread_mutex_unlock(&mutex);
}

EXTRA(cuStreamGetCaptureInfo_v2, CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **tails, size_t *count)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result == CUDA_SUCCESS && stream->is_legacy)
        result = fake_capture_check_legacy(stream);
    if (result != CUDA_SUCCESS)
        return result;
    if (!status)
        return CUDA_ERROR_INVALID_VALUE;
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!lock_captured(stream))
        return CUDA_SUCCESS;
    *status = stream->capture->is_spoilt ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (id)
        *id = stream->capture->id;
    if (graph)
        *graph = stream->capture->graph;
    if (tails)
        *tails = stream->tails;
    if (count)
        *count = stream->tail_count;
    pthread_mutex_unlock(&mutex);
    return CUDA_SUCCESS;
}

EXTRA(cuStreamGetCaptureInfo_v2_ptsz, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **tails, size_t *count)
{
    return cuStreamGetCaptureInfo_v2(FOR_THREAD(stream), status, id, graph, tails, count);
}

/* Edges carry no data here. */
EXTRA(cuStreamGetCaptureInfo_v3, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **tails, const void **edges, size_t *count)
{
    if (edges)
        *edges = NULL;
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, tails, count);
}

EXTRA(cuStreamGetCaptureInfo_v3_ptsz, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
      const CUgraphNode **tails, const void **edges, size_t *count)
{
    return cuStreamGetCaptureInfo_v3(FOR_THREAD(stream), status, id, graph, tails, edges, count);
}

EXTRA(cuStreamGetCaptureInfo, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo_v2(stream, status, id, NULL, NULL, NULL);
}

EXTRA(cuStreamGetCaptureInfo_ptsz, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id)
{
    return cuStreamGetCaptureInfo(FOR_THREAD(stream), status, id);
}

API CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamGetCaptureInfo_v2(stream, status, NULL, NULL, NULL, NULL);
}

API CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus *status)
{
    return cuStreamIsCapturing(FOR_THREAD(stream), status);
}
