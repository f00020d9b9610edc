/*
 * What the execution modules of the fake libcuda.so.1 share: a context's work and its streams.
 *
 * cuda_kernel.c owns modules, functions and how long a kernel takes; cuda_stream.c streams; cuda_queue.c their work; cuda_event.c events;
 * cuda_launch.c launches; cuda_graph.h's modules graphs and captures. When a context runs is schedule.h's. Every time named `_at` is on
 * the context's own time.
 *
 * Work starts in the order of its launches where it fits: a stream's after the stream's earlier work, and after what it was told to wait
 * for. The legacy default stream waits for all blocking streams of its context and they for it; a per-thread default stream is a
 * blocking one. Priorities change nothing. Once launched, work keeps its place on the context's time. A stream whose next step is a host
 * function or another context's event is held: what follows is queued, and a thread of its own takes it further.
 *
 * Locks: the device's, taken by fake_lock(). Functions that say so expect it held.
 */
#ifndef CUDA_EXECUTION_H
#define CUDA_EXECUTION_H

#include "cuda_fake.h"
#include "profile.h"

/* The same call for the per-thread default stream: `stream` is the name of the parameter. */
#define FOR_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

enum { FAKE_QUEUE = 1024 };

/* What the library under test has no need to know. */
#define CU_STREAM_DEFAULT 0u
#define CU_STREAM_NON_BLOCKING 1u
#define CU_EVENT_BLOCKING_SYNC 1u
#define CU_EVENT_DISABLE_TIMING 2u
#define CU_EVENT_INTERPROCESS 4u
#define CUDA_ERROR_ILLEGAL_STATE ((CUresult)401)
#define CUDA_ERROR_STREAM_CAPTURE_UNMATCHED ((CUresult)903)
#define CUDA_ERROR_STREAM_CAPTURE_ISOLATION ((CUresult)905)
#define CUDA_ERROR_STREAM_CAPTURE_IMPLICIT ((CUresult)906)
#define CUDA_ERROR_CAPTURED_EVENT ((CUresult)907)
#define CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD ((CUresult)908)
#define CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE ((CUresult)910)

typedef void (*fake_host_function)(void *data);
typedef void (*fake_callback)(CUstream stream, CUresult status, void *data);

/* One thing a stream does. */
struct fake_step {
    enum { FAKE_RUN, FAKE_RECORD, FAKE_WAIT, FAKE_CALL } kind;
    uint64_t duration_ns; /* FAKE_RUN */
    unsigned int part;
    CUevent event; /* FAKE_RECORD, FAKE_WAIT: the step holds a reference */
    fake_host_function function; /* FAKE_CALL: one of the two */
    fake_callback callback;
    void *data;
    struct fake_step *next;
};

struct CUstream_st {
    struct fake_execution *execution;
    unsigned int flags;
    int priority;
    bool is_legacy;
    int thread; /* whose per-thread default stream it is, else 0 */
    uint64_t end_at;
    uint64_t launched;
    uint64_t ends_at[FAKE_QUEUE]; /* of the last launches */
    struct fake_step *held, **held_end;
    unsigned int held_count;
    bool is_held;
    struct fake_capture *capture;
    CUgraphNode *tails; /* what the next captured node depends on */
    size_t tail_count;
    CUstream next; /* of the execution's */
};

/* A context's work. It outlives the context, whose streams and events may still be asked. */
struct fake_execution {
    CUcontext owner;
    int device;
    int context; /* on the schedule, or -1 before there is work */
    bool is_gone;
    struct profile profile;
    uint64_t end_at, legacy_at, blocking_at;
    unsigned int held_streams;
    struct CUstream_st legacy;
    CUstream streams;
};

struct CUevent_st {
    unsigned int flags;
    int references;
    enum { FAKE_FRESH, FAKE_QUEUED, FAKE_PLACED, FAKE_DONE } state;
    struct fake_execution *execution; /* where it was last recorded */
    uint64_t at;
    uint64_t when_ns;
    struct fake_capture *capture;
    CUgraphNode *tails;
    size_t tail_count;
};

/* A context's execution, made as needed. */
CUresult fake_execution_of(CUcontext context, struct fake_execution **execution);

/* The stream behind a handle, with a context's default streams made as needed. */
CUresult fake_stream(CUstream handle, CUstream *stream);

/* Take and drop the lock of the stream's device. */
uint64_t fake_lock(struct fake_execution *execution);
void fake_unlock(struct fake_execution *execution);

/* How far the execution has come, and whether it got there; the caller holds the lock. */
uint64_t fake_reached(const struct fake_execution *execution);

/* Sleep until the execution has come that far. */
void fake_await(struct fake_execution *execution, uint64_t at);

/* Sleep until a stream, or with NULL all streams, of an execution are done. */
void fake_drain(struct fake_execution *execution, CUstream stream);

/* Queue a step; a launch waits while FAKE_QUEUE of them are outstanding. */
CUresult fake_enqueue(CUstream stream, struct fake_step step);

/* The time on which the stream's next work waits; the caller holds the lock. */
uint64_t fake_stream_at(CUstream stream);

/* A call answered that something is not ready: a thread that spins on it lets virtual time pass. */
CUresult fake_not_ready(void);

/* Called with the lock held when a stream gets to an event. */
void fake_event_reach(CUevent event, CUstream stream);

/* Whether it is known how far the stream's context must come for the event, 0 for not at all; the caller holds the lock. */
bool fake_event_is_known(CUevent event, CUstream stream, uint64_t *at);
void fake_event_await(CUevent event);
void fake_event_hold(CUevent event);
void fake_event_drop(CUevent event);

/* How long the next launch of a function takes, which counts as one, and its part of the device. */
uint64_t fake_kernel_draw(CUfunction function);
unsigned int fake_kernel_part(CUfunction function);

/* Whether every launch of it takes as long. */
bool fake_kernel_is_steady(CUfunction function);

/* Capture: calls on a stream that is captured become nodes. */
CUresult fake_capture_kernel(CUstream stream, CUfunction function);
CUresult fake_capture_graph(CUstream stream, CUgraph graph);
CUresult fake_capture_step(CUstream stream, const struct fake_step *step);

/* A stream that is to wait for an event of a capture becomes part of it. */
void fake_capture_join(CUstream stream, CUevent event);

/* Whether a capture forbids the calling thread to ask or wait for the device, and anybody to use a legacy default stream. */
CUresult fake_capture_check(void);
CUresult fake_capture_check_legacy(CUstream legacy);

/* Call a function for each stream that belongs to a capture. */
void fake_streams_each(struct fake_execution *execution, const struct fake_capture *capture, void (*leave)(CUstream stream));

#endif
