#include "event_pool.h"

#include <stdatomic.h>
#include <string.h>

#include "clock.h"
#include "hooks.h"

enum { CONTEXTS_MAX = 32, EVENTS_MAX = 512 };

/* The driver returns milliseconds as a float: over two seconds its error is a quarter of a microsecond. */
#define ANCHOR_NS 2000000000u

#define STREAM_NON_BLOCKING 1u

struct hami_event {
    struct hami_event_pool *pool;
    CUevent event;
    struct hami_event *anchor; /* NULL for an anchor */
    struct hami_event *next; /* while free or returned */
    uint64_t at_ns; /* 0: unknown; for an anchor: when it was recorded */
    unsigned users;
};

struct hami_event_pool {
    CUcontext _Atomic context; /* NULL: free */
    _Atomic int device;
    CUstream stream;
    struct hami_event *anchor, *free;
    struct hami_event *_Atomic returned; /* to be dropped */
    _Atomic bool is_lost;
    unsigned made;
    struct hami_event events[EVENTS_MAX];
};

static struct hami_event_pool pools[CONTEXTS_MAX];

/* Return the pool with a context. Another device's lock may be held by who makes or closes others. */
static struct hami_event_pool *find(CUcontext context)
{
    for (int index = 0; index < CONTEXTS_MAX; index++)
        if (atomic_load(&pools[index].context) == context)
            return &pools[index];
    return NULL;
}

/* Take a free pool for a context, which no other thread makes a pool for meanwhile. */
static struct hami_event_pool *claim(CUcontext context, int device)
{
    for (int index = 0; index < CONTEXTS_MAX; index++) {
        CUcontext none = NULL;

        if (!atomic_compare_exchange_strong(&pools[index].context, &none, context))
            continue;
        atomic_store(&pools[index].device, device);
        return &pools[index];
    }
    return NULL;
}

struct hami_event_pool *hami_event_pool_of(CUcontext context, int device)
{
    struct hami_event_pool *pool;

    if (!context)
        return NULL;
    pool = find(context);
    if (pool)
        return atomic_load(&pool->device) == device ? pool : NULL;
    pool = claim(context, device);
    if (!pool || HAMI_INSIDE(hami_real.cuStreamCreate(&pool->stream, STREAM_NON_BLOCKING)) == CUDA_SUCCESS)
        return pool;
    atomic_store(&pool->context, NULL);
    return NULL;
}

int hami_event_pool_device(CUcontext context)
{
    struct hami_event_pool *pool = find(context);

    return pool ? atomic_load(&pool->device) : -1;
}

CUcontext hami_event_pool_context(const struct hami_event_pool *pool)
{
    return pool->context;
}

void hami_event_return(struct hami_event *event)
{
    struct hami_event_pool *pool = event->pool;

    event->next = atomic_load(&pool->returned);
    while (!atomic_compare_exchange_weak(&pool->returned, &event->next, event))
        continue;
}

static void drop_returned(struct hami_event_pool *pool)
{
    struct hami_event *event = atomic_exchange(&pool->returned, NULL), *next;

    for (; event; event = next) {
        next = event->next;
        hami_event_drop(event);
    }
}

static struct hami_event *take(struct hami_event_pool *pool)
{
    struct hami_event *event;

    if (__builtin_expect(atomic_load_explicit(&pool->returned, memory_order_relaxed) != NULL, 0))
        drop_returned(pool);
    event = pool->free;
    if (event) {
        pool->free = event->next;
    } else {
        if (pool->made == EVENTS_MAX)
            return NULL;
        event = &pool->events[pool->made];
        if (HAMI_INSIDE(hami_real.cuEventCreate(&event->event, 0)) != CUDA_SUCCESS)
            return NULL;
        pool->made++;
    }
    event->pool = pool;
    event->anchor = NULL;
    event->at_ns = 0;
    event->users = 1;
    return event;
}

struct hami_event *hami_event_retain(struct hami_event *event)
{
    event->users++;
    return event;
}

void hami_event_drop(struct hami_event *event)
{
    if (!event || --event->users || !event->event)
        return;
    hami_event_drop(event->anchor);
    event->next = event->pool->free;
    event->pool->free = event;
}

/* Whether a call of the driver took so long that it says nothing about when the device reached an event. */
static bool is_slow(uint64_t began_ns)
{
    return hami_now_ns() - began_ns > HAMI_SLOW_CALL_NS;
}

/* The pool's stream is empty, so the device reaches the anchor when it is recorded. */
static struct hami_event *anchor_of(struct hami_event_pool *pool, uint64_t now_ns)
{
    struct hami_event *fresh;

    if (pool->anchor && now_ns - pool->anchor->at_ns < ANCHOR_NS)
        return pool->anchor;
    fresh = take(pool);
    if (!fresh)
        return pool->anchor;
    fresh->at_ns = hami_now_ns();
    if (HAMI_INSIDE(hami_real.cuEventRecord(fresh->event, pool->stream)) != CUDA_SUCCESS || is_slow(fresh->at_ns)) {
        hami_event_drop(fresh);
        return pool->anchor;
    }
    hami_event_drop(pool->anchor);
    pool->anchor = fresh;
    return fresh;
}

/* Asking about the legacy stream fails while another stream is captured, and an event on it would invalidate the capture. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status;

    return HAMI_INSIDE(hami_real.cuStreamIsCapturing(stream, &status)) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct hami_event *hami_event_record(struct hami_event_pool *pool, CUstream stream, uint64_t now_ns)
{
    struct hami_event *anchor, *event;

    if (!pool->context || pool->is_lost || is_captured(stream))
        return NULL;
    anchor = anchor_of(pool, now_ns);
    event = anchor ? take(pool) : NULL;
    if (!event)
        return NULL;
    if (HAMI_INSIDE(hami_real.cuEventRecord(event->event, stream)) != CUDA_SUCCESS || is_slow(now_ns)) {
        hami_event_drop(event);
        return NULL;
    }
    event->anchor = hami_event_retain(anchor);
    return event;
}

enum hami_event_state hami_event_ask(struct hami_event *event, uint64_t *at_ns)
{
    float milliseconds;
    CUresult result;

    if (!event->event || event->pool->is_lost)
        return HAMI_EVENT_LOST;
    if (!event->at_ns) {
        result = HAMI_INSIDE(hami_real.cuEventQuery(event->event));
        if (result == CUDA_SUCCESS)
            result = HAMI_INSIDE(hami_real.cuEventElapsedTime(&milliseconds, event->anchor->event, event->event));
        if (result == CUDA_ERROR_NOT_READY)
            return HAMI_EVENT_AHEAD;
        if (result != CUDA_SUCCESS)
            return HAMI_EVENT_LOST;
        event->at_ns = event->anchor->at_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    }
    *at_ns = event->at_ns;
    return HAMI_EVENT_REACHED;
}

void hami_event_pool_close(struct hami_event_pool *pool)
{
    for (unsigned index = 0; index < pool->made; index++) {
        if (!pool->is_lost)
            HAMI_INSIDE(hami_real.cuEventDestroy_v2(pool->events[index].event));
        pool->events[index].event = NULL;
    }
    if (!pool->is_lost)
        HAMI_INSIDE(hami_real.cuStreamDestroy_v2(pool->stream));
    pool->anchor = pool->free = NULL;
    pool->returned = NULL;
    pool->made = 0;
    pool->is_lost = false;
    atomic_store(&pool->context, NULL);
}

void hami_event_pool_lose(CUcontext context)
{
    struct hami_event_pool *pool = find(context);

    if (pool)
        atomic_store(&pool->is_lost, true);
}

void hami_event_pools_close_lost(int device)
{
    for (struct hami_event_pool *pool = pools; pool < pools + CONTEXTS_MAX; pool++)
        if (__builtin_expect(pool->is_lost, 0) && atomic_load(&pool->device) == device)
            hami_event_pool_close(pool);
}

bool hami_event_pool_is_lost(const struct hami_event_pool *pool)
{
    return pool->is_lost;
}

void hami_event_pools_forget(void)
{
    for (int index = 0; index < CONTEXTS_MAX; index++)
        if (pools[index].context)
            memset(&pools[index], 0, sizeof(pools[index]));
}
