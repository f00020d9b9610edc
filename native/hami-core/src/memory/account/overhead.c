#include "overhead.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "changes.h"
#include "charges.h"
#include "code_loads.h"
#include "context_cost.h"
#include "devices.h"
#include "driver.h"
#include "own_process.h"
#include "patient_lock.h"
#include "pool.h"
#include "region.h"
#include "region_limits.h"

/* NVML is asked after each load of a module while less than this is left of the limit. */
#define SMALL_ROOM ((uint64_t)256 << 20)

/* What the numbers of a device are. Those that are unknown are measured before they are used, estimates when they are too old. */
enum freshness { UNKNOWN, ESTIMATED, MEASURED };

static struct {
    _Atomic int freshness;
    _Atomic bool is_doubtful;   /* the numbers below may be too high */
    uint64_t context, module;   /* as in the region */
    _Atomic uint64_t unsettled; /* what calls held that did not get the lock to settle it */
    _Atomic time_t measured_at;
} devices[HAMI_DEVICES_MAX];

/* Whether this process was ever charged for memory that NVML need not count for it: managed memory, and memory of others. */
static _Atomic bool is_elsewhere;

/* While a thread waits for a lock and holds it, its own change is paused (changes.h), so that it or the holder can measure exactly. */
static struct hami_patient_lock locks[HAMI_DEVICES_MAX] = {[0 ... HAMI_DEVICES_MAX - 1] =
                                                               HAMI_PATIENT_LOCK(HAMI_RANK_OVERHEAD, HAMI_WAIT_DRIVER)};

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

static void set_freshness(int device, int from, int to)
{
    atomic_compare_exchange_strong(&devices[device].freshness, &from, to);
}

/* Something changed, and the lock could not be taken to count it: what was held for it stays held until the next measurement. */
static void settle_later(int device, uint64_t held)
{
    atomic_fetch_add(&devices[device].unsettled, held);
    atomic_store(&devices[device].freshness, UNKNOWN);
}

/* Measuring: the caller holds the lock. */

struct measure {
    uint64_t bytes;
    bool is_known, is_exact;
};

/* Compare NVML's number with the charges. It means nothing if either changed meanwhile, so it is repeated a few times. */
static struct measure compare(int device)
{
    struct measure answer = {.is_known = true};

    for (int attempt = 0; attempt < 4 && !answer.is_exact; attempt++) {
        uint32_t changes;
        uint64_t charged, counted;
        bool is_quiet;

        hami_pools_refresh_device(device);
        is_quiet = hami_changes_are_none(device, &changes);
        charged = hami_region_own_data(device);
        if (!hami_nvml_own_bytes(device, &counted))
            return (struct measure){.is_known = false};
        hami_pools_refresh_device(device);
        answer.is_exact = is_quiet && hami_changes_are_none_since(device, changes) && charged == hami_region_own_data(device) &&
                          !hami_context_is_being_made(device);
        answer.bytes = counted > charged ? counted - charged : 0;
    }
    return answer;
}

/*
 * Return the bytes that NVML counts for this process beyond its charges. Exact unless a call that changes both lasts long, or a
 * context is being made. Then nothing is learned, and NVML is asked again before anything is refused.
 */
static struct measure measure(int device)
{
    struct measure answer = {.is_known = hami_nvml_is_recognised()};

    if (answer.is_known && !hami_context_is_being_made(device)) {
        hami_changes_hold_off(device);
        answer = compare(device);
        hami_changes_let();
    }
    if (hami_context_is_being_made(device))
        atomic_store(&devices[device].freshness, UNKNOWN);
    return answer;
}

/* Storing: the caller holds the lock. */

static void store_overhead(int device, uint64_t context, uint64_t module, uint64_t held)
{
    held += atomic_exchange(&devices[device].unsettled, 0);
    devices[device].context = context;
    devices[device].module = module;
    hami_region_store_overhead(device, &(struct hami_overhead){(uint64_t)hami_context_count(device), context, module}, held);
    hami_region_record_use(device);
}

/* Return what contexts and modules take together, as measured, or else as far as it is known. */
static uint64_t overhead(int device, const struct measure *answer, uint64_t known)
{
    if (!answer->is_known)
        return known;
    atomic_store(&devices[device].is_doubtful, !answer->is_exact);
    return answer->is_exact ? answer->bytes : known;
}

/* Store what contexts and modules take together. */
static void store_together(int device, uint64_t bytes, uint64_t held)
{
    uint64_t contexts = hami_context_part(device, bytes);

    store_overhead(device, contexts, bytes - contexts, held);
}

static void note_measured(int device, bool is_exact)
{
    hami_code_loads_measured(device, devices[device].module, is_exact);
    atomic_store(&devices[device].measured_at, time(NULL));
}

/*
 * Count a new context. Returns true unless it took more than was held. `known` is what the other contexts and all modules take, which
 * was measured before the call or grew since by what modules may take.
 */
static bool count_context(int device, const struct hami_before_context *before)
{
    uint64_t known = devices[device].context + devices[device].module, bytes;
    struct measure answer;
    bool is_measured;

    hami_context_count_change(device, 1);
    answer = measure(device);
    is_measured = answer.is_exact && answer.bytes > known && (before->is_measured || hami_context_count(device) == 1);
    hami_context_cost_learn(device, is_measured ? answer.bytes - known : 0, before->device_used);
    bytes = overhead(device, &answer, known + hami_context_cost(device));
    store_together(device, bytes, before->held);
    hami_context_cost_tell(device);
    return bytes <= known + before->held;
}

/* Count the end of a context and of its code. */
static void count_end(int device)
{
    struct measure answer = {.is_known = false};
    uint64_t contexts;

    hami_context_count_change(device, -1);
    contexts = (uint64_t)hami_context_count(device);
    if (contexts)
        answer = measure(device);
    store_together(device, overhead(device, &answer, contexts ? contexts * hami_context_cost(device) + devices[device].module : 0),
                   0);
    hami_context_cost_tell(device);
    note_measured(device, false);
}

/* Count a change of modules. Returns true unless it took more than was held. */
static bool count_modules(int device, uint64_t held)
{
    uint64_t known = devices[device].context + devices[device].module, bytes;
    struct measure answer;

    set_freshness(device, ESTIMATED, MEASURED);
    answer = measure(device);
    bytes = overhead(device, &answer, answer.is_known ? known + held : known);
    if (answer.is_exact)
        hami_context_cost_bound(device, bytes);
    store_together(device, bytes, held);
    note_measured(device, answer.is_exact);
    return bytes <= known + held;
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
    uint64_t bytes;

    if (!hami_code_load_cost(device, &bytes) || hami_context_is_being_made(device) || !hami_nvml_is_recognised() ||
        atomic_load(&devices[device].measured_at) != time(NULL) || is_room_small(device, 0))
        return false;
    set_freshness(device, MEASURED, ESTIMATED);
    store_overhead(device, devices[device].context, devices[device].module + bytes, held);
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
    count_context(device, &(struct hami_before_context){.held = 0});
}

static void look_again(int device)
{
    atomic_store(&devices[device].measured_at, time(NULL));
    atomic_store(&devices[device].freshness, MEASURED);
    if (hami_context_count(device) == 0)
        adopt(device);
    else
        count_modules(device, 0);
}

/* A moment at which a device was quiet. */
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
    if (hami_context_count(device) && !hami_context_is_being_made(device) && hami_changes_are_none(device, &moment.changes) &&
        hami_nvml_look_for_self(device, moment.charged, is_same_moment, &moment))
        look_again(device);
    unlock(device);
}

static void refresh(int device)
{
    if (!lock(device))
        return;
    if (!hami_context_is_being_made(device))
        look_again(device);
    unlock(device);
}

void hami_overhead_refresh(int device)
{
    if (__builtin_expect(atomic_load_explicit(&devices[device].freshness, memory_order_relaxed) != MEASURED, 0))
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
    int now = atomic_load_explicit(&devices[device].freshness, memory_order_relaxed);

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

    if (!atomic_load(&devices[device].is_doubtful) && atomic_load(&devices[device].freshness) == MEASURED)
        return is_anything;
    refresh(device);
    return true;
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
        if (hami_context_count(device))
            set_freshness(device, MEASURED, ESTIMATED);
}

void hami_overhead_forget(void)
{
    memset((void *)devices, 0, sizeof(devices));
    atomic_store(&is_elsewhere, false);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        hami_patient_lock_forget(&locks[device]);
    hami_context_costs_forget();
    hami_code_loads_forget();
    hami_own_process_forget();
}

/* Holding */

bool hami_overhead_hold_now(int device, uint64_t bytes)
{
    return hami_region_hold(device, bytes) || (hami_overhead_make_room(device) && hami_region_hold(device, bytes));
}

bool hami_overhead_hold(int device, uint64_t bytes)
{
    hami_overhead_follow(device, bytes);
    return hami_overhead_hold_now(device, bytes);
}

bool hami_overhead_settle(int device, uint64_t held, uint64_t loads)
{
    bool is_as_held;

    if (!loads)
        hami_candidates_restart();
    if (!lock(device)) {
        settle_later(device, held);
        return hami_pools_are_within(device);
    }
    hami_code_loads_add(device, loads);
    is_as_held = (loads && estimate_load(device, held)) || count_modules(device, held);
    unlock(device);
    return is_as_held || hami_pools_are_within(device);
}

/* Contexts */

void hami_overhead_look_before_context(int device, struct hami_before_context *before)
{
    before->processes.count = 0;
    before->is_measured = false;
    before->device_used = hami_nvml_device_used(device);
    if (hami_context_count(device) && lock(device)) {
        count_modules(device, 0);
        before->is_measured = !atomic_load(&devices[device].is_doubtful);
        unlock(device);
    }
    if (!hami_nvml_is_recognised() && !hami_nvml_list(device, &before->processes))
        before->processes.count = HAMI_NVML_PROCESSES_MAX + 1;
}

bool hami_overhead_add_context(int device, const struct hami_before_context *before)
{
    struct hami_nvml_processes after;
    bool is_listed =
        !hami_nvml_is_recognised() && before->processes.count <= HAMI_NVML_PROCESSES_MAX && hami_nvml_list(device, &after);
    bool is_as_held = false, is_locked = lock(device);

    hami_context_end_making(device);
    if (is_listed)
        hami_nvml_recognise(device, &before->processes, &after);
    if (is_locked) {
        is_as_held = count_context(device, before);
        unlock(device);
    } else {
        hami_context_count_change(device, 1);
        settle_later(device, before->held);
    }
    return is_as_held;
}

void hami_overhead_remove_context(int device)
{
    hami_candidates_restart();
    if (lock(device)) {
        count_end(device);
        unlock(device);
    } else {
        hami_context_count_change(device, -1);
        settle_later(device, 0);
    }
}
