/*
 * Events of the fake driver: when the device finished what their stream had queued before them.
 *
 * An event recorded on an idle stream happens at once. One that was never recorded counts as done, as with the driver. In a capture
 * an event only marks a place in the graph. FAKE_DRIVER_EVENT_NS is the time that recording or asking an event takes its thread, which
 * reads the clock meanwhile; default 0.
 */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/execution/execution.h"
#include "time/marks.h"
#include "time/schedule.h"

#define QUEUED_POLL_NS 50000u

static uint64_t event_ns;
static pthread_once_t cost_read = PTHREAD_ONCE_INIT;

static void read_cost(void)
{
    event_ns = fake_setting("FAKE_DRIVER_EVENT_NS", 0);
}

static void take_time(void)
{
    uint64_t until;

    pthread_once(&cost_read, read_cost);
    if (!event_ns)
        return;
    until = hw_now_ns() + event_ns;
    while (hw_now_ns() < until)
        continue;
}

void fake_event_hold(CUevent event)
{
    __atomic_fetch_add(&event->references, 1, __ATOMIC_RELAXED);
}

void fake_event_drop(CUevent event)
{
    if (__atomic_sub_fetch(&event->references, 1, __ATOMIC_ACQ_REL) == 0) {
        free(event->tails);
        free(event);
    }
}

void fake_event_queue(CUevent event)
{
    event->state = FAKE_QUEUED;
    event->capture = NULL;
    if (event->mark)
        mark_hold(event->mark - 1);
}

void fake_event_reach(CUevent event, CUstream stream)
{
    event->execution = stream->execution;
    event->at = fake_stream_at(stream);
    event->state = FAKE_PLACED;
    if (event->mark)
        mark_place(event->mark - 1, event->execution->device, event->execution->context, event->at);
    if (fake_reached(event->execution) >= event->at) {
        event->when_ns = hw_now_ns();
        event->state = FAKE_DONE;
    }
}

/* The caller holds the lock of the event's device. */
static bool is_done(CUevent event)
{
    if (event->state == FAKE_PLACED && fake_reached(event->execution) >= event->at) {
        event->when_ns = event->execution->is_gone ? hw_now_ns() : schedule_when_ns(event->execution->context, event->at);
        event->state = FAKE_DONE;
    }
    return event->state == FAKE_DONE || event->state == FAKE_FRESH;
}

static bool ask(CUevent event)
{
    struct fake_execution *execution = event->execution;
    bool answer;

    if (event->mark)
        return mark_is_reached(event->mark - 1);
    if (!execution)
        return event->state != FAKE_QUEUED;
    fake_lock(execution);
    answer = is_done(event);
    fake_unlock(execution);
    return answer;
}

bool fake_event_is_known(CUevent event, CUstream stream, uint64_t *at)
{
    *at = 0;
    if (event->mark)
        return false;
    if (event->execution == stream->execution && event->state == FAKE_PLACED) {
        *at = event->at;
        return true;
    }
    return event->state == FAKE_FRESH || event->state == FAKE_DONE;
}

void fake_event_await(CUevent event)
{
    while (event->mark && !mark_is_reached(event->mark - 1))
        nanosleep(&(struct timespec){0, QUEUED_POLL_NS}, NULL);
    if (event->mark)
        return;
    while (__atomic_load_n((int *)&event->state, __ATOMIC_ACQUIRE) == FAKE_QUEUED)
        nanosleep(&(struct timespec){0, QUEUED_POLL_NS}, NULL);
    if (event->execution && event->state == FAKE_PLACED)
        fake_await(event->execution, event->at);
    ask(event);
}

API CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!event || flags > (CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_VALUE;
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    (*event)->flags = flags;
    (*event)->references = 1;
    if (flags & CU_EVENT_INTERPROCESS)
        (*event)->mark = mark_create() + 1;
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_event_drop(event);
    return CUDA_SUCCESS;
}

EXTRA(cuEventDestroy, CUevent event)
{
    return cuEventDestroy_v2(event);
}

API CUresult cuEventRecord(CUevent event, CUstream handle)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    if (result != CUDA_SUCCESS)
        return result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    take_time();
    return fake_enqueue(stream, (struct fake_step){.kind = FAKE_RECORD, .event = event});
}

API CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
    return cuEventRecord(event, FOR_THREAD(stream));
}

EXTRA(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned int flags)
{
    (void)flags;
    return cuEventRecord(event, stream);
}

EXTRA(cuEventRecordWithFlags_ptsz, CUevent event, CUstream stream, unsigned int flags)
{
    return cuEventRecordWithFlags(event, FOR_THREAD(stream), flags);
}

API CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned int flags)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    fake_capture_join(stream, event);
    if (!stream->capture)
        ask(event);
    return fake_enqueue(stream, (struct fake_step){.kind = FAKE_WAIT, .event = event});
}

EXTRA(cuStreamWaitEvent_ptsz, CUstream stream, CUevent event, unsigned int flags)
{
    return cuStreamWaitEvent(FOR_THREAD(stream), event, flags);
}

static CUresult check(CUevent event)
{
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->capture)
        return CUDA_ERROR_CAPTURED_EVENT;
    return fake_capture_check();
}

API CUresult cuEventQuery(CUevent event)
{
    CUresult result = check(event);

    if (result != CUDA_SUCCESS)
        return result;
    take_time();
    return ask(event) ? CUDA_SUCCESS : fake_not_ready();
}

API CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = check(event);

    if (result != CUDA_SUCCESS)
        return result;
    fake_event_await(event);
    fake_pools_settle();
    return CUDA_SUCCESS;
}

static bool is_timed(CUevent event)
{
    return event && event->state != FAKE_FRESH && !(event->flags & CU_EVENT_DISABLE_TIMING);
}

API CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
    if (!milliseconds)
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_timed(start) || !is_timed(end))
        return CUDA_ERROR_INVALID_HANDLE;
    take_time();
    if (!ask(start) || !ask(end))
        return fake_not_ready();
    *milliseconds = (float)((double)((int64_t)(end->when_ns - start->when_ns)) / 1e6);
    return CUDA_SUCCESS;
}

EXTRA(cuEventElapsedTime_v2, float *milliseconds, CUevent start, CUevent end)
{
    return cuEventElapsedTime(milliseconds, start, end);
}
