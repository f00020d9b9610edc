/*
 * The hooks that make and destroy contexts, which are charged by context_making.h and destroyed again if they pass the limit.
 *
 * A context takes with it what was allocated in it. Its timing events are destroyed before it, because they belong to it. A primary
 * context ends with its last release. The driver does not say how many releases are left, so they are counted here.
 */
#include <stdatomic.h>

#include "account.h"
#include "context.h"
#include "context_making.h"
#include "devices.h"
#include "driver.h"
#include "hooks.h"
#include "limiter.h"
#include "log.h"
#include "overhead.h"
#include "patient_lock.h"
#include "pool.h"
#include "region.h"
#include "region_limits.h"

/*
 * Makes threads take turns when they make contexts of a device or end its primary context, so that each cost is measured by itself.
 * A turn lasts as long as the driver's call. Who has waited LONGEST_WAIT_NS for it goes on without: then costs are measured
 * together. Never taken while another lock of this library is held. A primary context that was retained is retained again, and
 * released if that does not end it, without a turn.
 */
static struct hami_patient_lock turns[HAMI_ORDINALS_MAX] = {[0 ... HAMI_ORDINALS_MAX - 1] =
                                                                HAMI_PATIENT_LOCK(HAMI_RANK_TURN, HAMI_WAIT_CONTEXT)};

#define LONGEST_WAIT_NS 10000000000u

static bool is_counted(CUdevice ordinal)
{
    return ordinal >= 0 && ordinal < HAMI_ORDINALS_MAX;
}

static bool take_turn(CUdevice ordinal)
{
    bool is_taken;

    if (hami_inside || !is_counted(ordinal))
        return false;
    is_taken = hami_patient_lock_take_within(&turns[ordinal], hami_device_of_ordinal(ordinal), LONGEST_WAIT_NS);
    if (!is_taken)
        hami_log(HAMI_LOG_WARNING, "CUDA device %d: another thread has been making or ending a context for %d s", ordinal,
                 (int)(LONGEST_WAIT_NS / 1000000000u));
    return is_taken;
}

static void end_turn(CUdevice ordinal, bool is_taken)
{
    if (is_taken)
        hami_patient_lock_give(&turns[ordinal]);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 0;

    return HAMI_INSIDE(hami_real.cuDevicePrimaryCtxGetState(ordinal, &flags, &active)) == CUDA_SUCCESS && active;
}

/* Discharge what a context took, and what was allocated in it. */
static void forget_context(CUcontext context)
{
    hami_memory_end_context(context);
    hami_context_discharge(context);
}

/* A request for a context: one of the driver's functions, and its arguments. */
struct creation {
    CUcontext *context;
    CUdevice ordinal;
    unsigned int flags;
    CUexecAffinityParam *affinities;
    int affinity_count;
    CUctxCreateParams *params;
    __typeof__(&cuCtxCreate_v2) create;
    __typeof__(&cuCtxCreate_v3) create_v3;
    __typeof__(&cuCtxCreate_v4) create_v4;
    __typeof__(&cuDevicePrimaryCtxRetain) retain;
};

static CUresult call_driver(const void *arguments)
{
    const struct creation *creation = arguments;

    if (creation->retain)
        return creation->retain(creation->context, creation->ordinal);
    if (creation->create_v4)
        return creation->create_v4(creation->context, creation->params, creation->flags, creation->ordinal);
    if (creation->create_v3)
        return creation->create_v3(creation->context, creation->affinities, creation->affinity_count, creation->flags,
                                   creation->ordinal);
    return creation->create(creation->context, creation->flags, creation->ordinal);
}

/*
 * Account for a context under another name. While it is destroyed it has one that no handle has: as soon as the driver has freed
 * its handle, another thread may make a context that gets the same.
 */
static void rename_context(CUcontext context, CUcontext name)
{
    struct hami_charge made, replaced;

    if (!hami_charges_take(&hami_contexts, (uint64_t)(uintptr_t)context, &made))
        return;
    made.key = (uint64_t)(uintptr_t)name;
    hami_charges_put(&hami_contexts, made, &replaced);
    hami_memory_change_context(context, name);
}

/* Make a context and charge it. Destroy it again if it passes the limit. */
static CUresult make(const struct creation *creation, int device)
{
    CUcontext before = hami_current_context(), name = (CUcontext)(void *)&before;
    bool is_within;
    CUresult result = hami_context_make(device, &(struct hami_context_maker){call_driver, creation, creation->context}, &is_within);

    if (is_within)
        return result;
    hami_log(HAMI_LOG_WARNING, "device %d: a context took more than was left and is undone: %llu of %llu bytes in use", device,
             (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    if (creation->retain) {
        HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRelease_v2(creation->ordinal));
    } else {
        rename_context(*creation->context, name);
        HAMI_INSIDE(hami_real.cuCtxDestroy_v2(*creation->context));
    }
    HAMI_INSIDE(hami_real.cuCtxSetCurrent(before));
    forget_context(creation->retain ? *creation->context : name);
    *creation->context = NULL;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* How many retains of a primary context were not released yet. Green contexts count as one each. */
static _Atomic int retains[HAMI_ORDINALS_MAX];

/*
 * Whether a primary context was retained before. Otherwise its maker may not have finished, and holds what is left of the limit
 * meanwhile.
 */
static bool is_retained(CUdevice ordinal)
{
    return is_counted(ordinal) && atomic_load(&retains[ordinal]) > 0 && primary_is_active(ordinal);
}

/* Make a context, unless it is a primary context that exists; that one costs nothing more. */
static CUresult create(const struct creation *creation)
{
    int device = creation->context && !hami_inside ? hami_device_of_ordinal(creation->ordinal) : -1;
    CUresult result;
    bool has_turn;

    if (device < 0 || (creation->retain && is_retained(creation->ordinal)))
        return call_driver(creation);
    has_turn = take_turn(creation->ordinal);
    if (creation->retain && primary_is_active(creation->ordinal))
        result = call_driver(creation);
    else
        result = make(creation, device);
    end_turn(creation->ordinal, has_turn);
    return result;
}

HAMI_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    return create(&(struct creation){context, ordinal, flags, .create = HAMI_REAL_CUDA(cuCtxCreate)});
}

HAMI_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    return create(&(struct creation){context, ordinal, flags, .create = HAMI_REAL_CUDA(cuCtxCreate_v2)});
}

HAMI_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int count, unsigned int flags,
                                    CUdevice ordinal)
{
    return create(&(struct creation){context, ordinal, flags, affinities, count, .create_v3 = HAMI_REAL_CUDA(cuCtxCreate_v3)});
}

HAMI_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    return create(&(struct creation){context, ordinal, flags, .params = params, .create_v4 = HAMI_REAL_CUDA(cuCtxCreate_v4)});
}

static void count_retain(CUresult result, CUdevice ordinal, int change)
{
    if (result == CUDA_SUCCESS && !hami_inside && is_counted(ordinal))
        atomic_fetch_add(&retains[ordinal], change);
}

/* Whether the next release is the last. Of several at the same time at least one gets true. */
static bool begin_release(CUdevice ordinal)
{
    return is_counted(ordinal) && atomic_fetch_sub(&retains[ordinal], 1) <= 1;
}

/* Whether the next release may be the last. */
static bool may_end(CUdevice ordinal)
{
    return is_counted(ordinal) && atomic_load(&retains[ordinal]) <= 1;
}

void hami_contexts_forget(void)
{
    for (int ordinal = 0; ordinal < HAMI_ORDINALS_MAX; ordinal++) {
        hami_patient_lock_forget(&turns[ordinal]);
        atomic_store(&retains[ordinal], 0);
    }
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CUresult result = create(&(struct creation){context, ordinal, .retain = HAMI_REAL_CUDA(cuDevicePrimaryCtxRetain)});

    count_retain(result, ordinal, 1);
    return result;
}

/* Destroying contexts */

static CUresult destroy(CUcontext context, __typeof__(&cuCtxDestroy_v2) real)
{
    CUcontext name = (CUcontext)(void *)&context;
    CUresult result;

    if (hami_inside)
        return real(context);
    HAMI_CHANGING(hami_charges_device(&hami_contexts, (uint64_t)(uintptr_t)context));
    hami_limiter_end_context(context);
    rename_context(context, name);
    result = HAMI_INSIDE(real(context));
    if (result == CUDA_SUCCESS)
        forget_context(name);
    else
        rename_context(name, context);
    return result;
}

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    return destroy(context, HAMI_REAL_CUDA(cuCtxDestroy));
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    return destroy(context, HAMI_REAL_CUDA(cuCtxDestroy_v2));
}

/* An attached context ends when it was detached as often as it was attached, and once more. */
HAMI_EXPORT CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuCtxAttach)(context, flags));

    if (result == CUDA_SUCCESS && context && !hami_inside)
        hami_charges_retain(&hami_contexts, (uint64_t)(uintptr_t)*context);
    return result;
}

HAMI_EXPORT CUresult cuCtxDetach(CUcontext context)
{
    __typeof__(&cuCtxDetach) real = HAMI_REAL_CUDA(cuCtxDetach);
    struct hami_charge made;
    CUresult result;

    if (!hami_charges_find(&hami_contexts, (uint64_t)(uintptr_t)context, &made) || made.references <= 1)
        return destroy(context, real);
    result = HAMI_INSIDE(real(context));
    if (result == CUDA_SUCCESS && !hami_inside)
        hami_charges_drop(&hami_contexts, (uint64_t)(uintptr_t)context, &made);
    return result;
}

/* Return the handle of an active primary context without retaining it. */
static CUcontext primary_of(CUdevice ordinal)
{
    CUcontext context = NULL;

    if (hami_inside || !primary_is_active(ordinal) ||
        HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRetain(&context, ordinal)) != CUDA_SUCCESS)
        return NULL;
    HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRelease_v2(ordinal));
    return context;
}

/*
 * Discharge what a primary context has lost by a release or a reset. A reset empties it, and the last release ends it. Whether a
 * reset also ends it depends on the driver, so it is asked.
 */
static void discharge_primary(CUdevice ordinal, CUcontext context, bool is_emptied)
{
    bool is_ended = !primary_is_active(ordinal);

    if (!is_emptied && !is_ended)
        return;
    hami_memory_end_context(context);
    hami_pools_end_device(hami_device_of_ordinal(ordinal), hami_memory_discharge);
    if (is_ended)
        hami_context_discharge(context);
}

/* Release or reset a primary context with `real`, the driver's function. */
static CUresult end_primary(CUdevice ordinal, bool is_reset, __typeof__(&cuDevicePrimaryCtxRelease_v2) real)
{
    CUcontext context;
    CUresult result;

    HAMI_CHANGING(hami_device_of_ordinal(ordinal));
    context = primary_of(ordinal);
    if (is_reset || begin_release(ordinal))
        hami_limiter_end_context(context);
    result = HAMI_INSIDE(real(ordinal));
    if (result == CUDA_SUCCESS && context)
        discharge_primary(ordinal, context, is_reset);
    else if (result != CUDA_SUCCESS && !is_reset)
        count_retain(CUDA_SUCCESS, ordinal, 1);
    return result;
}

static CUresult end_primary_in_turn(CUdevice ordinal, bool is_reset, __typeof__(&cuDevicePrimaryCtxRelease_v2) real)
{
    CUresult result;
    bool has_turn;

    if (hami_inside)
        return real(ordinal);
    has_turn = (is_reset || may_end(ordinal)) && take_turn(ordinal);
    result = end_primary(ordinal, is_reset, real);
    end_turn(ordinal, has_turn);
    return result;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    return end_primary_in_turn(ordinal, false, HAMI_REAL_CUDA(cuDevicePrimaryCtxRelease_v2));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    return end_primary_in_turn(ordinal, false, HAMI_REAL_CUDA(cuDevicePrimaryCtxRelease));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    return end_primary_in_turn(ordinal, true, HAMI_REAL_CUDA(cuDevicePrimaryCtxReset_v2));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    return end_primary_in_turn(ordinal, true, HAMI_REAL_CUDA(cuDevicePrimaryCtxReset));
}

/*
 * Green contexts are parts of the primary context. The first one makes it, and each retains it.
 * Source: CUDA Driver API, cuGreenCtxCreate, cuGreenCtxDestroy.
 */
static CUcontext context_of(CUgreenCtx green)
{
    CUcontext context = NULL;

    HAMI_INSIDE(hami_real.cuCtxFromGreenCtx(&context, green));
    return context;
}

/* Make a green context of an existing primary context. It takes little, which is settled like code. */
static CUresult make_part(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal, unsigned int flags, int device)
{
    CUresult result;

    if (!hami_overhead_hold(device, HAMI_MEMORY_BLOCK))
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = HAMI_INSIDE(hami_real.cuGreenCtxCreate(green, resources, ordinal, flags));
    if (hami_overhead_settle(device, HAMI_MEMORY_BLOCK, 0) || result != CUDA_SUCCESS)
        return result;
    HAMI_INSIDE(hami_real.cuGreenCtxDestroy(*green));
    hami_overhead_changed();
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* The primary context is retained during this call, so that its cost and the part's are measured separately. */
HAMI_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc resources, CUdevice ordinal, unsigned int flags)
{
    int device = green && !hami_inside ? hami_device_of_ordinal(ordinal) : -1;
    struct hami_charge made = {.owner = (uint64_t)ordinal, .device = (int16_t)device}, replaced;
    CUcontext primary;
    CUresult result;

    if (device < 0)
        return HAMI_REAL_CUDA(cuGreenCtxCreate)(green, resources, ordinal, flags);
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

/* Destroy a green context, which may end the primary context of its device too. */
static CUresult end_part(CUgreenCtx green, const struct hami_charge *made, __typeof__(&cuGreenCtxDestroy) real)
{
    CUdevice ordinal = (CUdevice)made->owner;
    struct hami_charge taken, replaced;
    CUcontext primary;
    CUresult result;

    HAMI_CHANGING(made->device);
    primary = primary_of(ordinal);
    hami_limiter_end_context(context_of(green));
    if (begin_release(ordinal))
        hami_limiter_end_context(primary);
    if (!hami_charges_take(&hami_greens, (uint64_t)(uintptr_t)green, &taken))
        taken = *made;
    result = HAMI_INSIDE(real(green));
    if (result != CUDA_SUCCESS) {
        hami_charges_put(&hami_greens, taken, &replaced);
        count_retain(CUDA_SUCCESS, ordinal, 1);
        return result;
    }
    hami_overhead_changed();
    discharge_primary(ordinal, primary, false);
    return result;
}

HAMI_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
    __typeof__(&cuGreenCtxDestroy) real = HAMI_REAL_CUDA(cuGreenCtxDestroy);
    struct hami_charge made;
    CUresult result;
    bool has_turn;

    if (hami_inside || !hami_charges_find(&hami_greens, (uint64_t)(uintptr_t)green, &made))
        return real(green);
    has_turn = may_end((CUdevice)made.owner) && take_turn((CUdevice)made.owner);
    result = end_part(green, &made, real);
    end_turn((CUdevice)made.owner, has_turn);
    return result;
}
