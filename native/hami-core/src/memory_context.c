/*
 * Contexts: made, charged for (memory_overhead.h), and ended again when they pass the limit.
 *
 * The end of a context ends what was allocated in it, and what is timed of it: that must go before, for its events are the context's. A
 * primary context ends with its last release; how many there are to come is counted here, because the driver does not say.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "hooks.h"
#include "limiter.h"
#include "memory.h"
#include "memory_overhead.h"
#include "memory_pool.h"
#include "process.h"
#include "region.h"

/*
 * Threads that make contexts of a device, or end its primary, do so one after the other: what is not accounted for yet must not be taken
 * for what is there. Never locked inside another lock of this library.
 */
static pthread_mutex_t turns[HAMI_ORDINALS_MAX] = {[0 ... HAMI_ORDINALS_MAX - 1] = PTHREAD_MUTEX_INITIALIZER};

static pthread_mutex_t *take_turn(CUdevice ordinal)
{
    if (hami_inside || ordinal < 0 || ordinal >= HAMI_ORDINALS_MAX)
        return NULL;
    pthread_mutex_lock(&turns[ordinal]);
    return &turns[ordinal];
}

static void give_turn(pthread_mutex_t **turn)
{
    if (*turn)
        pthread_mutex_unlock(*turn);
}

#define ONE_AFTER_THE_OTHER(ordinal) pthread_mutex_t *turn_ __attribute__((cleanup(give_turn), unused)) = take_turn(ordinal)

/* The body that makes a context on a device; `call` is the driver's, `undo` ends what it made. */
#define CREATE(symbol, ordinal, is_wanted, call, undo)                                    \
    do {                                                                                  \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                \
        int device = real && context && !hami_inside ? hami_process_device(ordinal) : -1; \
        struct hami_overhead_before before;                                               \
        CUresult result;                                                                  \
                                                                                          \
        if (!real)                                                                        \
            return CUDA_ERROR_NOT_FOUND;                                                  \
        ONE_AFTER_THE_OTHER(ordinal);                                                     \
        if (device < 0 || !(is_wanted))                                                   \
            return call;                                                                  \
        if (!hami_overhead_begin(device, &before))                                        \
            return CUDA_ERROR_OUT_OF_MEMORY;                                              \
        result = HAMI_INSIDE(call);                                                       \
        if (hami_overhead_end(device, &before, result == CUDA_SUCCESS ? *context : NULL)) \
            return result;                                                                \
        HAMI_INSIDE(undo);                                                                \
        if (hami_real.cuCtxSetCurrent)                                                    \
            HAMI_INSIDE(hami_real.cuCtxSetCurrent(before.current));                       \
        hami_overhead_discharge(*context);                                                \
        *context = NULL;                                                                  \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                  \
    } while (0)

#define DESTROY_AGAIN (hami_real.cuCtxDestroy_v2 ? hami_real.cuCtxDestroy_v2(*context) : CUDA_ERROR_NOT_FOUND)

HAMI_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v2, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int count, unsigned int flags,
                                    CUdevice ordinal)
{
    CREATE(cuCtxCreate_v3, ordinal, true, real(context, affinities, count, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v4, ordinal, true, real(context, params, flags, ordinal), DESTROY_AGAIN);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 0;

    return hami_real.cuDevicePrimaryCtxGetState &&
           HAMI_INSIDE(hami_real.cuDevicePrimaryCtxGetState(ordinal, &flags, &active)) == CUDA_SUCCESS && active;
}

static CUresult release_primary(CUdevice ordinal)
{
    return hami_real.cuDevicePrimaryCtxRelease_v2 ? hami_real.cuDevicePrimaryCtxRelease_v2(ordinal) : CUDA_ERROR_NOT_FOUND;
}

/* How often a primary context was retained and not released, by this process and by its green contexts. */
static _Atomic int retains[HAMI_ORDINALS_MAX];

static void count_retain(CUresult result, CUdevice ordinal, int change)
{
    if (result == CUDA_SUCCESS && !hami_inside && ordinal >= 0 && ordinal < HAMI_ORDINALS_MAX)
        atomic_fetch_add(&retains[ordinal], change);
}

/* Whether a release that is about to be made is the last: of several at once at least one is told so. */
static bool begin_release(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < HAMI_ORDINALS_MAX && atomic_fetch_sub(&retains[ordinal], 1) <= 1;
}

void hami_memory_forget_contexts(void)
{
    for (int ordinal = 0; ordinal < HAMI_ORDINALS_MAX; ordinal++) {
        pthread_mutex_init(&turns[ordinal], NULL);
        atomic_store(&retains[ordinal], 0);
    }
}

static CUresult retain_primary(CUcontext *context, CUdevice ordinal)
{
    CREATE(cuDevicePrimaryCtxRetain, ordinal, !primary_is_active(ordinal), real(context, ordinal), release_primary(ordinal));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CUresult result = retain_primary(context, ordinal);

    count_retain(result, ordinal, 1);
    return result;
}

/* Ending contexts, which frees what was allocated in them */

#define DESTROY(symbol)                                                                   \
    do {                                                                                  \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                \
        CUresult result;                                                                  \
                                                                                          \
        if (!real)                                                                        \
            return CUDA_ERROR_NOT_FOUND;                                                  \
        if (hami_inside)                                                                  \
            return real(context);                                                         \
        HAMI_CHANGING(hami_charges_device(&hami_contexts, (uint64_t)(uintptr_t)context)); \
        hami_limiter_end_context(context);                                                \
        result = HAMI_INSIDE(real(context));                                              \
        if (result == CUDA_SUCCESS)                                                       \
            hami_overhead_discharge(context);                                             \
        return result;                                                                    \
    } while (0)

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY(cuCtxDestroy);
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY(cuCtxDestroy_v2);
}

/* A context that was attached to ends when it was detached from as often, and once more. */
HAMI_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    __typeof__(&cuCtxAttach) real = HAMI_REAL_CUDA(cuCtxAttach);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(context, flags));
    if (result == CUDA_SUCCESS && context && !hami_inside)
        hami_charges_retain(&hami_contexts, (uint64_t)(uintptr_t)*context);
    return result;
}

HAMI_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    __typeof__(&cuCtxDetach) real = HAMI_REAL_CUDA(cuCtxDetach);
    struct hami_charge made;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (!hami_charges_find(&hami_contexts, (uint64_t)(uintptr_t)context, &made) || made.references <= 1)
        DESTROY(cuCtxDetach);
    result = HAMI_INSIDE(real(context));
    if (result == CUDA_SUCCESS && !hami_inside)
        hami_charges_drop(&hami_contexts, (uint64_t)(uintptr_t)context, &made);
    return result;
}

/* The handle of a primary context that is active, without keeping it. */
static CUcontext primary_of(CUdevice ordinal)
{
    CUcontext context = NULL;

    if (hami_inside || !hami_real.cuDevicePrimaryCtxRetain || !primary_is_active(ordinal) ||
        HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRetain(&context, ordinal)) != CUDA_SUCCESS)
        return NULL;
    HAMI_INSIDE(release_primary(ordinal));
    return context;
}

/* A reset empties a primary context, the last release ends it; whether a reset also ends it is the driver's to say. */
static void settle_primary(CUdevice ordinal, CUcontext context, bool is_emptied)
{
    bool is_ended = !primary_is_active(ordinal);

    if (!is_emptied && !is_ended)
        return;
    hami_memory_end_context(context);
    hami_pools_end_device(hami_process_device(ordinal));
    if (is_ended)
        hami_overhead_discharge(context);
}

#define END_PRIMARY(symbol, is_emptied)                         \
    do {                                                        \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);      \
        int device = real ? hami_process_device(ordinal) : -1;  \
        CUcontext context;                                      \
        CUresult result;                                        \
                                                                \
        if (!real)                                              \
            return CUDA_ERROR_NOT_FOUND;                        \
        if (hami_inside)                                        \
            return real(ordinal);                               \
        ONE_AFTER_THE_OTHER(ordinal);                           \
        HAMI_CHANGING(device);                                  \
        context = primary_of(ordinal);                          \
        if ((is_emptied) || begin_release(ordinal))             \
            hami_limiter_end_context(context);                  \
        result = HAMI_INSIDE(real(ordinal));                    \
        if (result == CUDA_SUCCESS && context)                  \
            settle_primary(ordinal, context, is_emptied);       \
        else if (result != CUDA_SUCCESS && !(is_emptied))       \
            count_retain(CUDA_SUCCESS, ordinal, 1);             \
        return result;                                          \
    } while (0)

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, true);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset, true);
}

/*
 * Green contexts are parts of the primary context, which they make when it is not there and keep as if they had retained it. Source: CUDA
 * Driver API, cuGreenCtxCreate, cuGreenCtxDestroy.
 */
static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context = NULL;

    if (hami_real.cuCtxFromGreenCtx)
        HAMI_INSIDE(hami_real.cuCtxFromGreenCtx(&context, green));
    return context;
}

/* A green context of a primary that is there costs a little, which is settled like code. */
static CUresult make_part(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal, unsigned int flags, int device)
{
    CUresult result;

    if (!hami_overhead_hold(device, HAMI_MEMORY_BLOCK))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = HAMI_INSIDE(hami_real.cuGreenCtxCreate(green, resources, ordinal, flags));
    if (hami_overhead_settle(device, HAMI_MEMORY_BLOCK) || result != CUDA_SUCCESS || !hami_real.cuGreenCtxDestroy)
        return result;
    HAMI_INSIDE(hami_real.cuGreenCtxDestroy(*green));
    hami_overhead_changed();
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The primary is retained for the moment of making the part, so that what each costs is known. */
HAMI_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal, unsigned int flags)
{
    __typeof__(&cuGreenCtxCreate) real = HAMI_REAL_CUDA(cuGreenCtxCreate);
    int device = real && green && !hami_inside ? hami_process_device(ordinal) : -1;
    struct hami_charge made = {.owner = (uint64_t)ordinal, .device = (int16_t)device}, replaced;
    CUcontext primary;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (device < 0)
        return real(green, resources, ordinal, flags);
    result = cuDevicePrimaryCtxRetain(&primary, ordinal);
    if (result != CUDA_SUCCESS)
        return result;
    result = make_part(green, resources, ordinal, flags, device);
    count_retain(result, ordinal, 1);
    cuDevicePrimaryCtxRelease_v2(ordinal);
    made.key = (uint64_t)(uintptr_t)*green;
    if (result == CUDA_SUCCESS)
        hami_charges_put(&hami_greens, made, &replaced);
    return result;
}

HAMI_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    __typeof__(&cuGreenCtxDestroy) real = HAMI_REAL_CUDA(cuGreenCtxDestroy);
    struct hami_charge made;
    CUcontext primary;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (hami_inside || !hami_charges_find(&hami_greens, (uint64_t)(uintptr_t)green, &made))
        return real(green);
    ONE_AFTER_THE_OTHER((CUdevice)made.owner);
    HAMI_CHANGING(made.device);
    primary = primary_of((CUdevice)made.owner);
    hami_limiter_end_context(context_of(green));
    if (begin_release((CUdevice)made.owner))
        hami_limiter_end_context(primary);
    result = HAMI_INSIDE(real(green));
    if (result != CUDA_SUCCESS) {
        count_retain(CUDA_SUCCESS, (CUdevice)made.owner, 1);
        return result;
    }
    hami_charges_take(&hami_greens, (uint64_t)(uintptr_t)green, &made);
    hami_overhead_changed();
    settle_primary((CUdevice)made.owner, primary, false);
    return result;
}
