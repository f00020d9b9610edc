/*
 * What the execution modules of the fake libcuda.so.1 share: a context's work and its streams.
 *
 * kernel.c owns modules, functions and the duration of kernels; stream.c streams; queue.c their work; event.c events; launch.c
 * launches; the modules of graph.h graphs and captures. schedule.h owns when a context runs. Times named
 * `_at` are on the context's own clock.
 *
 * Work starts in the order of its launches where it fits: after earlier work of its stream, and after what the stream waits for.
 * The legacy default stream waits for all blocking streams of its context, and they for it. A per-thread default stream is a
 * blocking one. Priorities have no effect. Launched work keeps its place on the context's clock. A stream is held if its next step
 * is a host function or another context's event: later steps are queued, and a separate thread continues it.
 *
 * Locks: the device's lock, taken by fake_lock(). Functions that need it say so.
 */
#ifndef CUDA_EXECUTION_H
#define CUDA_EXECUTION_H

#include "cuda/fake.h"
#include "time/profile.h"

/* The same call for the per-thread default stream; `stream` is the parameter. */
#define FOR_THREAD(stream) ((stream) ? (stream) : CU_STREAM_PER_THREAD)

enum { FAKE_QUEUE = 1024 };

/* Types that the library under test does not use. */
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

/* One step of a stream. */
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
    int thread; /* the thread whose default stream it is, else 0 */
    uint64_t end_at;
    uint64_t launched;
    uint64_t ends_at[FAKE_QUEUE]; /* of the last launches */
    struct fake_step *held, **held_end;
    unsigned int held_count;
    bool is_held;
    struct fake_capture *capture;
    CUgraphNode *tails; /* what the next captured node depends on */
    size_t tail_count;
    CUstream next; /* of the execution */
};

/* A context's work. It outlives the context, because streams and events may still be asked. */
struct fake_execution {
    CUcontext owner;
    int device;
    int context; /* in the schedule, or -1 before there is work */
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
    int mark; /* of an interprocess event (time/marks.h), plus 1; otherwise 0. The mark says what is reached */
};

/* Return a context's execution, made if necessary. */
CUresult fake_execution_of(CUcontext context, struct fake_execution **execution);

/* Return the stream of a handle. A context's default streams are made if necessary. */
CUresult fake_stream(CUstream handle, CUstream *stream);

/* Take and release the lock of the stream's device. */
uint64_t fake_lock(struct fake_execution *execution);
void fake_unlock(struct fake_execution *execution);

/* Return how far the execution has come, and whether it has reached a time. The caller holds the lock. */
uint64_t fake_reached(const struct fake_execution *execution);

/* Sleep until the execution has reached a time, or this client of MPS has a lasting error. */
void fake_await(struct fake_execution *execution, uint64_t at);

/* Sleep until a stream of an execution is done, or with NULL all of them. Returns the lasting error of a client of MPS. */
CUresult fake_drain(struct fake_execution *execution, CUstream stream);

/* Queue a step. A launch waits while FAKE_QUEUE launches are outstanding. */
CUresult fake_enqueue(CUstream stream, struct fake_step step);

/* Return the time for which the stream's next work waits. The caller holds the lock. */
uint64_t fake_stream_at(CUstream stream);

/* Note that a call answered "not ready", so that virtual time passes for a thread that polls. */
CUresult fake_not_ready(void);

/* Called when an event is recorded, before its place is known. The lock is held. */
void fake_event_queue(CUevent event);

/* Called when a stream reaches an event. The lock is held. */
void fake_event_reach(CUevent event, CUstream stream);

/* Whether the time that the context must reach for the event is known; 0 if there is none. The caller holds the lock. */
bool fake_event_is_known(CUevent event, CUstream stream, uint64_t *at);
void fake_event_await(CUevent event);
void fake_event_hold(CUevent event);
void fake_event_drop(CUevent event);

/* Load the module of a function, if that was put off until its first launch. */
CUresult fake_kernel_load(CUfunction function);

/* Return how long the next launch of a function takes, and its part of the device. Counts as a launch. */
uint64_t fake_kernel_draw(CUfunction function);
unsigned int fake_kernel_part(CUfunction function);

/* Whether all launches of the function take the same time. */
bool fake_kernel_is_steady(CUfunction function);

/* Capture: a call on a captured stream becomes a node, and `*result` its result. They return false if the stream is not captured. */
bool fake_capture_kernel(CUstream stream, CUfunction function, CUresult *result);
bool fake_capture_graph(CUstream stream, CUgraph graph, CUresult *result);
bool fake_capture_step(CUstream stream, const struct fake_step *step, CUresult *result);

/* A stream that waits for an event of a capture joins the capture. */
void fake_capture_join(CUstream stream, CUevent event);

/* Whether a capture forbids the calling thread to query or wait for the device, and all threads to use a legacy default stream. */
CUresult fake_capture_check(void);
CUresult fake_capture_check_legacy(CUstream legacy);

/* Call a function for each stream that belongs to a capture. */
void fake_streams_each(struct fake_execution *execution, const struct fake_capture *capture, void (*leave)(CUstream stream));

#endif
