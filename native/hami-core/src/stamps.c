#include "stamps.h"

#include <string.h>

#include "hooks.h"

enum { CONTEXTS_MAX = 32, STAMPS_MAX = 512 };

/* The driver tells milliseconds as a float: up to two seconds apart that is a quarter of a microsecond. */
#define ANCHOR_NS 2000000000u

#define STREAM_NON_BLOCKING 1u

struct hami_stamp {
    struct hami_stamps *pool;
    CUevent event;
    struct hami_stamp *anchor; /* NULL for an anchor */
    struct hami_stamp *next; /* while free */
    uint64_t at_ns; /* 0: not known; for an anchor when it was recorded */
    unsigned users;
};

struct hami_stamps {
    CUcontext context;
    CUstream stream;
    struct hami_stamp *anchor, *free;
    unsigned made;
    struct hami_stamp stamps[STAMPS_MAX];
};

static struct hami_stamps pools[CONTEXTS_MAX];

static bool can_time(void)
{
    return hami_real.cuEventCreate && hami_real.cuEventRecord && hami_real.cuEventQuery && hami_real.cuEventElapsedTime &&
           hami_real.cuEventDestroy_v2 && hami_real.cuStreamCreate && hami_real.cuStreamDestroy_v2 && hami_real.cuStreamIsCapturing;
}

struct hami_stamps *hami_stamps_of(CUcontext context)
{
    struct hami_stamps *fresh = NULL;

    if (!context || !can_time())
        return NULL;
    for (int index = 0; index < CONTEXTS_MAX; index++) {
        if (pools[index].context == context)
            return &pools[index];
        if (!pools[index].context && !fresh)
            fresh = &pools[index];
    }
    if (!fresh || HAMI_INSIDE(hami_real.cuStreamCreate(&fresh->stream, STREAM_NON_BLOCKING)) != CUDA_SUCCESS)
        return NULL;
    fresh->context = context;
    return fresh;
}

CUcontext hami_stamps_context(const struct hami_stamps *stamps)
{
    return stamps->context;
}

static struct hami_stamp *take(struct hami_stamps *pool)
{
    struct hami_stamp *stamp = pool->free;

    if (stamp) {
        pool->free = stamp->next;
    } else {
        if (pool->made == STAMPS_MAX)
            return NULL;
        stamp = &pool->stamps[pool->made];
        if (HAMI_INSIDE(hami_real.cuEventCreate(&stamp->event, 0)) != CUDA_SUCCESS)
            return NULL;
        pool->made++;
    }
    stamp->pool = pool;
    stamp->anchor = NULL;
    stamp->at_ns = 0;
    stamp->users = 1;
    return stamp;
}

struct hami_stamp *hami_stamp_hold(struct hami_stamp *stamp)
{
    stamp->users++;
    return stamp;
}

void hami_stamp_drop(struct hami_stamp *stamp)
{
    if (!stamp || --stamp->users || !stamp->event)
        return;
    hami_stamp_drop(stamp->anchor);
    stamp->next = stamp->pool->free;
    stamp->pool->free = stamp;
}

/* The stream is this pool's own and empty, so the device reaches the anchor when it is recorded. */
static struct hami_stamp *anchor_of(struct hami_stamps *pool, uint64_t now_ns)
{
    struct hami_stamp *fresh;

    if (pool->anchor && now_ns - pool->anchor->at_ns < ANCHOR_NS)
        return pool->anchor;
    fresh = take(pool);
    if (!fresh)
        return pool->anchor;
    if (HAMI_INSIDE(hami_real.cuEventRecord(fresh->event, pool->stream)) != CUDA_SUCCESS) {
        hami_stamp_drop(fresh);
        return pool->anchor;
    }
    fresh->at_ns = now_ns;
    hami_stamp_drop(pool->anchor);
    pool->anchor = fresh;
    return fresh;
}

/* Asking about the legacy stream fails while others are captured, and recording on it would spoil their capture. */
static bool is_captured(CUstream stream)
{
    CUstreamCaptureStatus status;

    return HAMI_INSIDE(hami_real.cuStreamIsCapturing(stream, &status)) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE;
}

struct hami_stamp *hami_stamp_record(struct hami_stamps *stamps, CUstream stream, uint64_t now_ns)
{
    struct hami_stamp *anchor, *stamp;

    if (!stamps->context || is_captured(stream))
        return NULL;
    anchor = anchor_of(stamps, now_ns);
    stamp = anchor ? take(stamps) : NULL;
    if (!stamp)
        return NULL;
    if (HAMI_INSIDE(hami_real.cuEventRecord(stamp->event, stream)) != CUDA_SUCCESS) {
        hami_stamp_drop(stamp);
        return NULL;
    }
    stamp->anchor = hami_stamp_hold(anchor);
    return stamp;
}

enum hami_stamp_state hami_stamp_ask(struct hami_stamp *stamp, uint64_t *at_ns)
{
    float milliseconds;
    CUresult result;

    if (!stamp->event)
        return HAMI_STAMP_LOST;
    if (!stamp->at_ns) {
        result = HAMI_INSIDE(hami_real.cuEventQuery(stamp->event));
        if (result == CUDA_SUCCESS)
            result = HAMI_INSIDE(hami_real.cuEventElapsedTime(&milliseconds, stamp->anchor->event, stamp->event));
        if (result == CUDA_ERROR_NOT_READY)
            return HAMI_STAMP_AHEAD;
        if (result != CUDA_SUCCESS)
            return HAMI_STAMP_LOST;
        stamp->at_ns = stamp->anchor->at_ns + (uint64_t)(int64_t)((double)milliseconds * 1e6);
    }
    *at_ns = stamp->at_ns;
    return HAMI_STAMP_REACHED;
}

void hami_stamps_close(struct hami_stamps *stamps)
{
    for (unsigned index = 0; index < stamps->made; index++) {
        HAMI_INSIDE(hami_real.cuEventDestroy_v2(stamps->stamps[index].event));
        stamps->stamps[index].event = NULL;
    }
    HAMI_INSIDE(hami_real.cuStreamDestroy_v2(stamps->stream));
    stamps->context = NULL;
    stamps->anchor = stamps->free = NULL;
    stamps->made = 0;
}

void hami_stamps_forget(void)
{
    for (int index = 0; index < CONTEXTS_MAX; index++)
        if (pools[index].context)
            memset(&pools[index], 0, sizeof(pools[index]));
}
