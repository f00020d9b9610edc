#include "overhead.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "candidates.h"
#include "changes.h"
#include "charges.h"
#include "devices.h"
#include "driver.h"
#include "hooks.h"
#include "log.h"
#include "own_process.h"
#include "patient_lock.h"
#include "pool.h"
#include "region.h"
#include "region_contexts.h"

/* What a context can cost: less is noise, more is another program's allocation. NVIDIA's contexts take 100 to 600 MiB. */
#define CONTEXT_LEAST ((uint64_t)16 << 20)
#define CONTEXT_MOST ((uint64_t)1 << 30)

/*
 * NVML's answer takes long where many processes use a device. So loads of modules are estimated, until a second has passed since it
 * was asked, or they may have taken this much, or less than this is left of the limit.
 */
#define ESTIMATED_MOST ((uint64_t)64 << 20)
#define SMALL_ROOM ((uint64_t)256 << 20)

static struct {
    _Atomic int contexts;
    _Atomic bool is_doubtful;    /* the numbers below may be too high */
    _Atomic uint64_t each_bytes; /* of one context, as last measured */
    uint64_t context, module;    /* as in the region */
    uint64_t measured_module;    /* as last measured */
    uint64_t loads, load_bytes;  /* since then; and of one load, as last measured, 0 for unknown */
    _Atomic int making;          /* contexts that the driver may have made already and that are not counted yet */
    _Atomic uint64_t unsettled;  /* what calls held that did not get the lock to settle it */
    _Atomic time_t measured_at;
} devices[HAMI_DEVICES_MAX];

/* Whether this process was ever charged for memory that NVML need not count for it: managed memory, and memory of others. */
static _Atomic bool is_elsewhere;

/* While a thread waits for a lock and holds it, its own change is paused (changes.h), so that it or the holder can measure exactly. */
static struct hami_patient_lock locks[HAMI_DEVICES_MAX] = {[0 ... HAMI_DEVICES_MAX - 1] = HAMI_PATIENT_LOCK};

static bool lock(int device)
{
    hami_change_pause();
    if (hami_patient_lock_take(&locks[device], device))
        return true;
    hami_change_resume();
    return false;
}

static void unlock(int device)
{
    hami_patient_lock_give(&locks[device]);
    hami_change_resume();
}

/* What the numbers of a device are. Those that are unknown are measured before they are used, estimates when they are too old. */
enum { UNKNOWN, ESTIMATED, MEASURED };
static _Atomic int numbers[HAMI_DEVICES_MAX];

static void become(int device, int from, int to)
{
    atomic_compare_exchange_strong(&numbers[device], &from, to);
}

/* Something changed, and the lock could not be taken to count it: what was held for it stays held until the next measurement. */
static void settle_later(int device, uint64_t held)
{
    atomic_fetch_add(&devices[device].unsettled, held);
    atomic_store(&numbers[device], UNKNOWN);
}

/* Measuring: the caller holds the lock. */

struct measure {
    uint64_t bytes;
    bool is_known, is_exact;
};

/*
 * Return the bytes that NVML counts for this process beyond its charges. Charges are made before the driver acts and given back
 * after it, so the answer is never too high. It is exact if no change was in progress; otherwise it is repeated a few times. While
 * a context is being made, nothing can be learned.
 */
static struct measure measure(int device)
{
    struct measure answer = {.is_known = true};

    if (devices[device].making) {
        atomic_store(&numbers[device], UNKNOWN);
        return (struct measure){.is_known = hami_nvml_is_recognised()};
    }
    for (int attempt = 0; attempt < 4 && !answer.is_exact; attempt++) {
        uint32_t changes;
        uint64_t charged, counted;

        hami_pools_refresh_device(device);
        answer.is_exact = hami_changes_are_settled(device, &changes);
        charged = hami_region_own_data(device);
        if (!hami_nvml_own_bytes(device, &counted))
            return (struct measure){.is_known = false};
        hami_pools_refresh_device(device);
        answer.is_exact &= hami_changes_are_none_since(device, changes) && charged == hami_region_own_data(device) &&
                           !atomic_load(&devices[device].making);
        counted = counted > charged ? counted - charged : 0;
        if (answer.is_exact || counted > answer.bytes)
            answer.bytes = counted;
    }
    return answer;
}

/*
 * Return what a context cost by the device's use before and after. Others' allocations only add to it, so the smaller number is
 * better.
 */
static uint64_t estimate(int device, uint64_t device_before)
{
    uint64_t device_after = hami_nvml_device_used(device);
    uint64_t bytes = device_after > device_before ? device_after - device_before : 0;
    uint64_t others;

    if (bytes < CONTEXT_LEAST || bytes > CONTEXT_MOST)
        bytes = 0;
    if (hami_region_least_context(device, &others) && (!bytes || others < bytes))
        bytes = others;
    return bytes;
}

/* Storing: the caller holds the lock. */

static void state(int device, uint64_t context, uint64_t module, uint64_t held)
{
    held += atomic_exchange(&devices[device].unsettled, 0);
    devices[device].context = context;
    devices[device].module = module;
    hami_region_state_overhead(device, &(struct hami_overhead){(uint64_t)devices[device].contexts, context, module}, held);
    hami_region_record_use(device);
}

/*
 * Return what contexts and modules take together, in place of what was held. A measurement that may be too low raises the known
 * number, but does not lower it.
 */
static uint64_t overhead(int device, const struct measure *answer, uint64_t held)
{
    uint64_t most = devices[device].context + devices[device].module + held;

    atomic_store(&devices[device].is_doubtful, !answer->is_exact);
    return answer->is_exact || answer->bytes > most ? answer->bytes : most;
}

/* Note what modules take now, and what a load took of it. */
static void note_measured(int device, bool is_exact)
{
    uint64_t module = devices[device].module, before = devices[device].measured_module, loads = devices[device].loads;

    if (loads && is_exact)
        devices[device].load_bytes = module > before ? (module - before + loads - 1) / loads : 1;
    devices[device].measured_module = module;
    devices[device].loads = 0;
    atomic_store(&devices[device].measured_at, time(NULL));
}

/* Count a new context: what is not modules' is contexts'. Returns true unless it took more than was held. */
static bool add_context(int device, uint64_t held)
{
    uint64_t before = devices[device].context + devices[device].module, module = devices[device].module, bytes;
    uint64_t contexts = (uint64_t)++devices[device].contexts;
    struct measure answer = measure(device);

    bytes = answer.is_known ? overhead(device, &answer, held) : contexts * devices[device].each_bytes + module;
    if (module > bytes)
        module = bytes;
    state(device, bytes - module, module, held);
    devices[device].each_bytes = devices[device].context / contexts;
    return bytes <= before + held;
}

/* Count the end of a context and of its code: what is not the other contexts' is modules'. */
static void remove_context(int device)
{
    uint64_t context = (uint64_t)--devices[device].contexts * devices[device].each_bytes, module = devices[device].module, bytes;
    struct measure answer = {.is_known = false};

    if (devices[device].contexts == 0)
        module = 0;
    else
        answer = measure(device);
    bytes = answer.is_known ? overhead(device, &answer, 0) : context + module;
    if (context > bytes)
        context = bytes;
    state(device, context, bytes - context, 0);
    note_measured(device, false);
}

/* Count a change of modules. Returns true unless it took more than was held. */
static bool count_modules(int device, uint64_t held)
{
    uint64_t before = devices[device].context + devices[device].module, context = devices[device].context, bytes;
    struct measure answer;

    become(device, ESTIMATED, MEASURED);
    answer = measure(device);
    bytes = answer.is_known ? overhead(device, &answer, held) : before;
    if (context > bytes)
        context = bytes;
    state(device, context, bytes - context, held);
    note_measured(device, answer.is_exact);
    return bytes <= before + held;
}

/* Whether less than SMALL_ROOM is left of the limit when `bytes` more are taken. */
static bool is_room_small(int device, uint64_t bytes)
{
    uint64_t limit = hami_region_limit(device), used = hami_region_used(device);

    return limit && (bytes > limit || used + bytes + SMALL_ROOM > limit);
}

/* Count a load of a module as what others took. Returns false if it must be measured. */
static bool estimate_load(int device, uint64_t held)
{
    uint64_t bytes = devices[device].load_bytes;

    if (!bytes || devices[device].making || !hami_nvml_is_recognised() || devices[device].loads * bytes > ESTIMATED_MOST ||
        atomic_load(&devices[device].measured_at) != time(NULL) || is_room_small(device, 0))
        return false;
    become(device, MEASURED, ESTIMATED);
    state(device, devices[device].context, devices[device].module + bytes, held);
    return true;
}

/*
 * Count the current context if it was made in a way that is not hooked. If it is the only one that NVML lists, it belongs to this
 * process.
 */
static void adopt(int device)
{
    struct hami_charge found = {.key = (uint64_t)(uintptr_t)hami_current_context(), .device = (int16_t)device, .references = 1},
                       replaced;
    struct hami_nvml_processes listed, none = {.count = 0};
    struct measure answer;

    if (!found.key || hami_current_device() != device)
        return;
    if (!hami_nvml_is_recognised() && hami_nvml_list(device, &listed))
        hami_nvml_recognise(device, &none, &listed);
    answer = measure(device);
    if (!answer.is_known || !answer.bytes || !hami_charges_put(&hami_contexts, found, &replaced))
        return;
    add_context(device, 0);
}

static void look_again(int device)
{
    atomic_store(&devices[device].measured_at, time(NULL));
    atomic_store(&numbers[device], MEASURED);
    if (devices[device].contexts == 0)
        adopt(device);
    else
        count_modules(device, 0);
}

/* A moment at which a device was settled. */
struct moment {
    int device;
    uint32_t changes;
    uint64_t charged;
};

static bool is_same_moment(const void *arguments)
{
    const struct moment *moment = arguments;

    return hami_changes_are_none_since(moment->device, moment->changes) && moment->charged == hami_region_own_data(moment->device);
}

/* Find out which of NVML's processes this one is. Until then its contexts were estimated; they are measured now. */
static void look_for_self(int device)
{
    struct moment moment = {.device = device};

    if (atomic_load(&is_elsewhere) || !lock(device))
        return;
    hami_pools_refresh_device(device);
    moment.charged = hami_region_own_data(device);
    if (devices[device].contexts && !devices[device].making && hami_changes_are_settled(device, &moment.changes) &&
        hami_nvml_look_for_self(device, moment.charged, is_same_moment, &moment))
        look_again(device);
    unlock(device);
}

static void refresh(int device)
{
    if (!lock(device))
        return;
    if (!devices[device].making)
        look_again(device);
    unlock(device);
}

void hami_overhead_refresh(int device)
{
    if (__builtin_expect(atomic_load_explicit(&numbers[device], memory_order_relaxed) != MEASURED, 0))
        refresh(device);
}

void hami_overhead_refresh_if_stale(int device)
{
    time_t now = time(NULL);

    if (__builtin_expect(hami_candidates_are_any(), 0))
        look_for_self(device);
    if (atomic_load_explicit(&devices[device].measured_at, memory_order_relaxed) != now && hami_nvml_is_recognised() &&
        atomic_exchange(&devices[device].measured_at, now) != now)
        refresh(device);
}

void hami_overhead_follow(int device, uint64_t bytes)
{
    int now = atomic_load_explicit(&numbers[device], memory_order_relaxed);

    if (__builtin_expect(hami_candidates_are_any(), 0))
        look_for_self(device);
    if (__builtin_expect(now != MEASURED, 0) && (now == UNKNOWN || is_room_small(device, bytes)))
        refresh(device);
    else if (now != MEASURED || hami_region_limit(device))
        hami_overhead_refresh_if_stale(device);
}

bool hami_overhead_make_room(int device)
{
    bool is_anything = hami_pools_trim(device);

    if (!atomic_load(&devices[device].is_doubtful) && atomic_load(&numbers[device]) == MEASURED)
        return is_anything;
    refresh(device);
    return true;
}

bool hami_overhead_await_first_context(int device)
{
    bool is_locked;

    if (hami_inside || atomic_load(&devices[device].contexts))
        return false;
    hami_change_pause();
    is_locked = hami_region_lock_contexts(device);
    if (is_locked)
        hami_region_unlock_contexts(device);
    hami_change_resume();
    return is_locked;
}

void hami_overhead_note_elsewhere(void)
{
    atomic_store(&is_elsewhere, true);
}

void hami_overhead_changed(void)
{
    hami_candidates_restart();
    if (!hami_nvml_is_recognised())
        return;
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (devices[device].contexts)
            become(device, MEASURED, ESTIMATED);
}

void hami_overhead_forget(void)
{
    memset((void *)devices, 0, sizeof(devices));
    atomic_store(&is_elsewhere, false);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        hami_patient_lock_forget(&locks[device]);
        atomic_store(&numbers[device], UNKNOWN);
    }
    hami_own_process_forget();
}

/* Holding */

static bool hold(int device, uint64_t bytes)
{
    return hami_region_hold(device, bytes) || (hami_overhead_make_room(device) && hami_region_hold(device, bytes));
}

/* Whether the container is within its limit, although more was taken than was held. */
static bool is_within(int device)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit || hami_region_used(device) <= limit)
        return true;
    hami_region_sweep();
    hami_pools_trim(device);
    return hami_region_used(device) <= limit;
}

static bool is_cost_known(int device, uint64_t *bytes)
{
    *bytes = devices[device].each_bytes;
    return *bytes || hami_region_least_context(device, bytes);
}

/* The state before a context was made. */
struct before {
    struct hami_nvml_processes processes;
    uint64_t device_used, held;
};

static void look_before(int device, struct before *before)
{
    before->processes.count = 0;
    before->device_used = hami_nvml_device_used(device);
    if (!hami_nvml_is_recognised() && !hami_nvml_list(device, &before->processes))
        before->processes.count = HAMI_NVML_PROCESSES_MAX + 1;
}

/* Charge a new context in place of what was held. Returns false if it passes the limit. */
static bool charge_context(int device, const struct before *before, CUcontext context)
{
    struct hami_charge made = {.key = (uint64_t)(uintptr_t)context, .device = (int16_t)device, .references = 1}, replaced;
    struct hami_nvml_processes after;
    bool is_listed =
        !hami_nvml_is_recognised() && before->processes.count <= HAMI_NVML_PROCESSES_MAX && hami_nvml_list(device, &after);
    bool is_as_held = false, is_locked = lock(device);

    atomic_fetch_sub(&devices[device].making, 1);
    if (is_listed)
        hami_nvml_recognise(device, &before->processes, &after);
    if (is_locked) {
        if (!hami_nvml_is_recognised() && !devices[device].each_bytes)
            devices[device].each_bytes = estimate(device, before->device_used);
        is_as_held = add_context(device, before->held);
        hami_region_expect_no_context(device);
        unlock(device);
    } else {
        atomic_fetch_add(&devices[device].contexts, 1);
        settle_later(device, before->held);
    }
    hami_charges_put(&hami_contexts, made, &replaced);
    return is_as_held || is_within(device);
}

static bool make(int device, struct before *before, const struct hami_context_maker *maker, CUresult *result)
{
    look_before(device, before);
    atomic_fetch_add(&devices[device].making, 1);
    *result = HAMI_INSIDE(maker->make(maker->arguments));
    if (*result == CUDA_SUCCESS && *maker->context)
        return charge_context(device, before, *maker->context);
    atomic_fetch_sub(&devices[device].making, 1);
    hami_region_expect_no_context(device);
    hami_region_drop_hold(device, before->held);
    return true;
}

/*
 * Hold what a context is expected to take. Returns false if it does not fit. If no process has a context or makes one, hold all that
 * is left and keep the lock until the cost is known: other processes cannot miss that memory, because they wait for the lock before
 * they make a context. If the lock is not free in time, its holder has held what was left: the context is made if there is more than
 * that, and otherwise refused.
 */
static bool hold_context(int device, bool *is_locked, uint64_t *held)
{
    bool is_held;

    if (!hami_region_limit(device))
        return true;
    *is_locked = hami_region_lock_contexts(device);
    if (!is_cost_known(device, held))
        return (*held = hami_region_hold_rest(device, CONTEXT_MOST)) != 0;
    is_held = hold(device, *held);
    if (is_held)
        hami_region_expect_context(device, *held);
    if (*is_locked)
        hami_region_unlock_contexts(device);
    *is_locked = false;
    return is_held;
}

CUresult hami_overhead_make_context(int device, const struct hami_context_maker *maker, bool *is_within)
{
    struct before before = {.held = 0};
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    bool is_locked = false;

    hami_overhead_refresh(device);
    *is_within = true;
    if (hold_context(device, &is_locked, &before.held))
        *is_within = make(device, &before, maker, &result);
    else
        hami_log(HAMI_LOG_WARNING, "device %d: context refused: %llu of %llu bytes in use", device,
                 (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    if (is_locked)
        hami_region_unlock_contexts(device);
    return result;
}

void hami_overhead_discharge(CUcontext context)
{
    struct hami_charge made;

    if (!hami_charges_take(&hami_contexts, (uint64_t)(uintptr_t)context, &made))
        return;
    hami_candidates_restart();
    if (lock(made.device)) {
        remove_context(made.device);
        unlock(made.device);
    } else {
        atomic_fetch_sub(&devices[made.device].contexts, 1);
        settle_later(made.device, 0);
    }
}

bool hami_overhead_hold(int device, uint64_t bytes)
{
    hami_overhead_follow(device, bytes);
    return hold(device, bytes);
}

static bool settle(int device, uint64_t held, uint64_t loads)
{
    bool is_as_held;

    if (!loads)
        hami_candidates_restart();
    if (!lock(device)) {
        settle_later(device, held);
        return is_within(device);
    }
    devices[device].loads += loads;
    is_as_held = (loads && estimate_load(device, held)) || count_modules(device, held);
    unlock(device);
    return is_as_held || is_within(device);
}

bool hami_overhead_settle(int device, uint64_t held)
{
    return settle(device, held, 0);
}

bool hami_overhead_settle_load(int device, uint64_t held)
{
    return settle(device, held, 1);
}
