/*
 * The queues of streams: where a step goes, what delays it, and waiting for it. execution.h has the rules.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "cuda/device/mps.h"
#include "cuda/execution/execution.h"
#include "time/schedule.h"

/* How often to ask for an event without a known time, which is the end of a host function. */
#define HELD_POLL_NS 50000u
/* How often a client of MPS looks whether it has lost its server. */
#define MPS_POLL_NS 10000000u
/* How many "not ready" answers a thread gets at one moment of virtual time before that time advances, and how far. */
enum { SPINS = 100, SPIN_NS = 1000 };

/* Defined by libfake_time.so, if it is preloaded. */
__attribute__((weak)) bool fake_time_is_virtual(void);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for the executions of contexts */

static void sleep_until(uint64_t at_ns)
{
    struct timespec at = {(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        continue;
}

CUresult fake_not_ready(void)
{
    static _Thread_local uint64_t last_ns;
    static _Thread_local int spins;
    uint64_t now = hw_now_ns();

    spins = now == last_ns ? spins + 1 : 0;
    last_ns = now;
    if (spins >= SPINS && fake_time_is_virtual && fake_time_is_virtual())
        sleep_until(now + SPIN_NS);
    return CUDA_ERROR_NOT_READY;
}

/* A context's execution */

static struct fake_execution *new_execution(CUcontext context)
{
    struct fake_execution *execution = calloc(1, sizeof(*execution));

    if (!execution)
        return NULL;
    execution->owner = context;
    execution->device = context->physical;
    execution->context = -1;
    execution->legacy.execution = execution;
    execution->legacy.is_legacy = true;
    execution->legacy.held_end = &execution->legacy.held;
    return execution;
}

CUresult fake_execution_of(CUcontext context, struct fake_execution **execution)
{
    *execution = __atomic_load_n(&context->execution, __ATOMIC_ACQUIRE);
    if (*execution)
        return CUDA_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (!context->execution)
        __atomic_store_n(&context->execution, new_execution(context), __ATOMIC_RELEASE);
    *execution = context->execution;
    pthread_mutex_unlock(&mutex);
    return *execution ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void fake_execution_forget(CUcontext context)
{
    struct fake_execution *execution;

    pthread_mutex_lock(&mutex);
    execution = context->execution;
    __atomic_store_n(&context->execution, NULL, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
    if (!execution)
        return;
    fake_lock(execution);
    if (execution->context >= 0)
        schedule_context_close(execution->context);
    execution->is_gone = true;
    profile_clear(&execution->profile);
    fake_unlock(execution);
}

uint64_t fake_lock(struct fake_execution *execution)
{
    return schedule_lock(execution->device);
}

void fake_unlock(struct fake_execution *execution)
{
    schedule_unlock(execution->device);
}

uint64_t fake_reached(const struct fake_execution *execution)
{
    if (execution->is_gone)
        return UINT64_MAX;
    return execution->context >= 0 ? schedule_reached_at(execution->context) : 0;
}

void fake_await(struct fake_execution *execution, uint64_t at)
{
    for (;;) {
        uint64_t until = 0;
        bool is_there;

        fake_lock(execution);
        is_there = fake_reached(execution) >= at;
        if (!is_there)
            until = schedule_expect_ns(execution->context, at);
        fake_unlock(execution);
        if (is_there || fake_mps_check() != CUDA_SUCCESS)
            return;
        if (fake_mps_client().number && until > hw_now_ns() + MPS_POLL_NS)
            until = hw_now_ns() + MPS_POLL_NS;
        sleep_until(until);
    }
}

/* The order of work */

static uint64_t later(uint64_t one, uint64_t other)
{
    return one > other ? one : other;
}

static bool is_blocking(const struct CUstream_st *stream)
{
    return !stream->is_legacy && !(stream->flags & CU_STREAM_NON_BLOCKING);
}

uint64_t fake_stream_at(CUstream stream)
{
    if (stream->is_legacy)
        return later(stream->end_at, stream->execution->blocking_at);
    return is_blocking(stream) ? later(stream->end_at, stream->execution->legacy_at) : stream->end_at;
}

static void reach(CUstream stream, uint64_t at)
{
    struct fake_execution *execution = stream->execution;

    stream->end_at = at;
    if (stream->is_legacy)
        execution->legacy_at = at;
    else if (is_blocking(stream))
        execution->blocking_at = later(execution->blocking_at, at);
}

/* The functions from here to fake_enqueue() need the lock held. */

/* Work that is for more of the device than this process has takes longer. Its part becomes one of what the process has. */
static void fit(uint64_t *duration_ns, unsigned int *part)
{
    uint64_t wanted = (uint64_t)*part * HW_MULTIPROCESSORS, present = (uint64_t)PROFILE_WHOLE * fake_mps_multiprocessors();

    if (wanted > present)
        *duration_ns = *duration_ns * wanted / present;
    *part = wanted < present ? (unsigned int)((wanted * PROFILE_WHOLE + present - 1) / present) : PROFILE_WHOLE;
}

static CUresult place(CUstream stream, uint64_t duration_ns, unsigned int part)
{
    struct fake_execution *execution = stream->execution;
    uint64_t end;

    if (execution->is_gone)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (execution->context < 0)
        execution->context = schedule_context_open(execution->device, fake_mps_client());
    fit(&duration_ns, &part);
    if (execution->context < 0 || !profile_place(&execution->profile, schedule_reached_at(execution->context),
                                                 fake_stream_at(stream), duration_ns, part, &end))
        return CUDA_ERROR_OUT_OF_MEMORY;
    reach(stream, end);
    stream->ends_at[stream->launched++ % FAKE_QUEUE] = end;
    if (end > execution->end_at) {
        execution->end_at = end;
        schedule_promise(execution->context, end);
    }
    return CUDA_SUCCESS;
}

/* Do a step at once. Returns false if the stream must be held for it. */
static bool perform(CUstream stream, const struct fake_step *step, CUresult *result)
{
    uint64_t at;

    *result = CUDA_SUCCESS;
    switch (step->kind) {
    case FAKE_RUN:
        *result = place(stream, step->duration_ns, step->part);
        return true;
    case FAKE_RECORD:
        fake_event_reach(step->event, stream);
        return true;
    case FAKE_WAIT:
        if (!fake_event_is_known(step->event, stream, &at))
            return false;
        reach(stream, later(stream->end_at, at));
        return true;
    case FAKE_CALL:
        break;
    }
    return false;
}

static CUresult append(CUstream stream, const struct fake_step *step)
{
    struct fake_step *copy = malloc(sizeof(*copy));

    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *copy = *step;
    copy->next = NULL;
    if (copy->event)
        fake_event_hold(copy->event);
    *stream->held_end = copy;
    stream->held_end = &copy->next;
    stream->held_count++;
    return CUDA_SUCCESS;
}

static void drop_first(CUstream stream)
{
    struct fake_step *first = stream->held;

    stream->held = first->next;
    if (!stream->held)
        stream->held_end = &stream->held;
    stream->held_count--;
    if (first->event)
        fake_event_drop(first->event);
    free(first);
}

/* Do what can be done at once. Returns whether the stream is still held. */
static bool proceed(CUstream stream)
{
    CUresult result;

    while (stream->held && perform(stream, stream->held, &result))
        drop_first(stream);
    stream->is_held = stream->held != NULL;
    stream->execution->held_streams -= !stream->is_held;
    return stream->is_held;
}

/* Do the step that holds a stream, without the lock. */
static void finish(CUstream stream, const struct fake_step *step, uint64_t at)
{
    if (step->kind == FAKE_WAIT) {
        fake_event_await(step->event);
        return;
    }
    fake_await(stream->execution, at);
    if (step->callback)
        step->callback(stream, CUDA_SUCCESS, step->data);
    else
        step->function(step->data);
}

static void *carry_on(void *argument)
{
    CUstream stream = argument;
    bool is_held = true;

    while (is_held) {
        struct fake_step step;
        uint64_t at;

        fake_lock(stream->execution);
        step = *stream->held;
        at = fake_stream_at(stream);
        fake_unlock(stream->execution);
        finish(stream, &step, at);
        fake_lock(stream->execution);
        drop_first(stream);
        is_held = proceed(stream);
        fake_unlock(stream->execution);
    }
    return NULL;
}

static CUresult hold(CUstream stream, const struct fake_step *step)
{
    pthread_attr_t attributes;
    pthread_t thread;
    CUresult result = append(stream, step);
    int error;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    error = pthread_create(&thread, &attributes, carry_on, stream);
    pthread_attr_destroy(&attributes);
    if (error) {
        drop_first(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->is_held = true;
    stream->execution->held_streams++;
    return CUDA_SUCCESS;
}

/* Whether a launch must wait, and until when; UINT64_MAX is an unknown time. */
static bool is_full(CUstream stream, uint64_t *at)
{
    uint64_t next = stream->launched + stream->held_count;

    *at = stream->held_count >= FAKE_QUEUE ? UINT64_MAX : stream->ends_at[next % FAKE_QUEUE];
    return next >= FAKE_QUEUE && fake_reached(stream->execution) < *at;
}

static void await_room(CUstream stream, uint64_t at)
{
    fake_unlock(stream->execution);
    if (at == UINT64_MAX)
        sleep_until(hw_now_ns() + HELD_POLL_NS);
    else
        fake_await(stream->execution, at);
    fake_lock(stream->execution);
}

CUresult fake_enqueue(CUstream stream, struct fake_step step)
{
    CUresult result = stream->is_legacy ? fake_capture_check_legacy(stream) : CUDA_SUCCESS;
    uint64_t at;

    if (result != CUDA_SUCCESS || (step.kind != FAKE_RUN && fake_capture_step(stream, &step, &result)))
        return result;
    fake_lock(stream->execution);
    while (step.kind == FAKE_RUN && is_full(stream, &at))
        await_room(stream, at);
    if (step.kind == FAKE_RECORD)
        fake_event_queue(step.event);
    if (stream->is_held)
        result = append(stream, &step);
    else if (!perform(stream, &step, &result))
        result = hold(stream, &step);
    fake_unlock(stream->execution);
    return result;
}

CUresult fake_drain(struct fake_execution *execution, CUstream stream)
{
    bool is_held = true;
    uint64_t at = 0;

    while (is_held) {
        fake_lock(execution);
        is_held = stream ? stream->is_held : execution->held_streams > 0;
        at = stream ? fake_stream_at(stream) : execution->end_at;
        fake_unlock(execution);
        if (is_held)
            sleep_until(hw_now_ns() + HELD_POLL_NS);
    }
    fake_await(execution, at);
    fake_pools_settle();
    return fake_mps_check();
}
