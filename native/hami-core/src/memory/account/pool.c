#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "blocks.h"
#include "charges.h"
#include "hooks.h"
#include "inventory.h"
#include "lock_rank.h"
#include "log.h"
#include "region.h"
#include "region_limits.h"
#include "waits.h"

/* The `kind` of a pool's charge: whether the driver may still be asked about it. */
enum { LIVE, ENDED };

/*
 * The steps in which pools grow. NVIDIA's grow by 32 MiB: RESERVED_MEM_CURRENT shows that after an allocation of one byte. Whole
 * steps are charged before the driver is asked, so that it never takes more than the limit. The last step that was seen counts, for
 * pools and for graphs' memory separately.
 */
#define FIRST_STEP ((uint64_t)32 << 20)

enum { ATTEMPTS = 4, POLL_NS = 1000000, LONGEST_WAIT_MS = 10000 };

/*
 * A thread's call to the driver about a pool. It is in the list for as long as it lasts, because no lock is held then. So others
 * count what it may take, and the pool is not destroyed meanwhile.
 */
struct call {
    uint64_t pool;
    int device;
    uint64_t version;         /* of the device, when `bytes` was set */
    uint64_t bytes;           /* to be taken from the pool; the driver may count them already */
    _Atomic uint64_t charged; /* to the region for the growth, beside the pool's charge */
    bool is_trimming;
    struct call *next;
};

/* Guards what follows, and the charges of pools together with what the region is charged for them. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct call *calls;
static uint64_t steps[] = {FIRST_STEP, FIRST_STEP};

/* Changes when numbers of the device's pools are stored, so that no older number is stored after a newer one. */
static _Atomic uint64_t versions[HAMI_DEVICES_MAX];

_Atomic bool hami_pools_are_used;

static bool is_of_graphs(uint64_t pool)
{
    return pool <= HAMI_POOL_OF_GRAPHS(HAMI_ORDINALS_MAX - 1);
}

static CUmemoryPool handle_of(uint64_t pool)
{
    return (CUmemoryPool)(uintptr_t)pool;
}

static CUdevice ordinal_of(uint64_t pool)
{
    return (CUdevice)(pool - HAMI_POOL_OF_GRAPHS(0));
}

/* Ask for a number of a pool: each of the two kinds has its own attributes. */
static bool ask(uint64_t pool, int attribute, int attribute_of_graphs, cuuint64_t *bytes)
{
    if (is_of_graphs(pool))
        return HAMI_INSIDE(hami_real.cuDeviceGetGraphMemAttribute(ordinal_of(pool), attribute_of_graphs, bytes)) == CUDA_SUCCESS;
    return HAMI_INSIDE(hami_real.cuMemPoolGetAttribute(handle_of(pool), attribute, bytes)) == CUDA_SUCCESS;
}

static bool reserved_bytes(uint64_t pool, cuuint64_t *bytes)
{
    return ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, bytes);
}

static bool used_bytes(uint64_t pool, cuuint64_t *bytes)
{
    return ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, bytes);
}

static void give_up_unused(uint64_t pool)
{
    if (is_of_graphs(pool))
        HAMI_INSIDE(hami_real.cuDeviceGraphMemTrim(ordinal_of(pool)));
    else
        HAMI_INSIDE(hami_real.cuMemPoolTrimTo(handle_of(pool), 0));
}

/* Calls in progress: the caller holds the mutex. */

/* What the calls about a pool add up to, except `own`. */
struct sum {
    uint64_t bytes, charged;
    bool is_any, is_trimmed;
};

static struct sum sum_of_calls(uint64_t pool, const struct call *own)
{
    struct sum sum = {.bytes = 0};

    for (const struct call *call = calls; call; call = call->next) {
        if (call->pool != pool || call == own)
            continue;
        sum.is_any = true;
        sum.is_trimmed |= call->is_trimming;
        sum.bytes += call->bytes;
        sum.charged += atomic_load(&call->charged);
    }
    return sum;
}

static void remove_call(const struct call *call)
{
    struct call **link = &calls;

    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
}

enum purpose { TAKE, ASK, ASK_ALONE, TRIM };

/*
 * Begin a call about a pool. False if the pool is unknown or has ended. To trim it, or to ask alone, is refused while others take
 * memory from it: then they ask the driver again.
 */
static bool begin(struct call *call, uint64_t pool, enum purpose purpose)
{
    struct hami_charge known;
    bool is_begun;

    *call = (struct call){.pool = pool, .is_trimming = purpose == TRIM};
    hami_lock(&mutex, HAMI_RANK_POOLS);
    is_begun = hami_charges_find(&hami_pools, pool, &known) && known.kind == LIVE && known.device >= 0;
    if (is_begun && (purpose == TRIM || purpose == ASK_ALONE) && sum_of_calls(pool, NULL).bytes) {
        atomic_fetch_add(&versions[known.device], 1);
        is_begun = false;
    }
    if (is_begun) {
        call->device = known.device;
        call->next = calls;
        calls = call;
    }
    hami_unlock(&mutex, HAMI_RANK_POOLS);
    return is_begun;
}

static void end(const struct call *call)
{
    hami_lock(&mutex, HAMI_RANK_POOLS);
    remove_call(call);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
}

static bool is_called(uint64_t pool, const struct call *own, bool is_taking)
{
    struct sum sum;

    hami_lock(&mutex, HAMI_RANK_POOLS);
    sum = sum_of_calls(pool, own);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
    return is_taking ? sum.bytes != 0 : sum.is_any;
}

/*
 * Wait until no other call about the pool is in progress, or none that takes memory. `*waited_ms` is the sum of several waits, and
 * at most LONGEST_WAIT_MS. Returns whether there was such a call.
 */
static bool wait_for_others(uint64_t pool, const struct call *own, bool is_taking, int *waited_ms)
{
    struct hami_wait wait = {.slept_ns = {[HAMI_WAIT_POOL] = (uint64_t)*waited_ms * POLL_NS}};
    int before_ms = *waited_ms;

    while (*waited_ms < LONGEST_WAIT_MS && is_called(pool, own, is_taking)) {
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
        hami_wait_add(&wait, HAMI_WAIT_POOL, hami_pool_device(pool), POLL_NS);
        if (++*waited_ms == LONGEST_WAIT_MS)
            hami_log(HAMI_LOG_WARNING, "device %d: waited %d s for other threads that use a memory pool", hami_pool_device(pool),
                     LONGEST_WAIT_MS / 1000);
    }
    return *waited_ms > before_ms;
}

/*
 * Settle what the region is charged for a pool by what the driver has reserved. What calls in progress are charged may be in the
 * driver's number, so it is not charged twice. Returns what had to be charged in addition. `is_raise`: the number may be old, and is
 * used only if it is higher. The caller holds the mutex.
 */
static uint64_t store(const struct hami_charge *known, uint64_t charged_by_calls, uint64_t reserved, bool is_raise)
{
    uint64_t before = known->bytes, bytes = before;

    if (reserved > before + charged_by_calls)
        bytes = reserved - charged_by_calls;
    else if (reserved < before && !is_raise)
        bytes = reserved;
    if (bytes > before)
        hami_region_charge_anyway(known->device, bytes - before);
    else
        hami_region_discharge(known->device, before - bytes);
    hami_charges_resize(&hami_pools, known->key, bytes);
    atomic_fetch_add(&versions[known->device], 1);
    return bytes > before ? bytes - before : 0;
}

static void learn_step(const struct call *call, const struct hami_charge *known, uint64_t reserved)
{
    uint64_t grown = reserved > known->bytes ? reserved - known->bytes : 0, *step = &steps[is_of_graphs(call->pool)];

    if (call->bytes && grown && (grown > atomic_load(&call->charged) || grown < *step) &&
        atomic_load(&versions[call->device]) == call->version)
        *step = grown;
}

/* End a call that took memory: what it was charged becomes the pool's. The caller holds the mutex. */
static void end_taking(struct call *call, struct hami_charge *known)
{
    remove_call(call);
    call->bytes = 0;
    known->bytes += atomic_exchange(&call->charged, 0);
    hami_charges_resize(&hami_pools, call->pool, known->bytes);
}

/* Store a number that the driver gave at a version of the device. False if another number was stored since. */
static bool try_to_store(struct call *call, uint64_t reserved, uint64_t version, bool is_last, uint64_t *raised)
{
    struct hami_charge known;
    bool is_stored = true;

    hami_lock(&mutex, HAMI_RANK_POOLS);
    if (!hami_charges_find(&hami_pools, call->pool, &known)) {
        remove_call(call);
        hami_region_discharge(call->device, atomic_load(&call->charged));
    } else if (is_last || version == atomic_load(&versions[call->device])) {
        learn_step(call, &known, reserved);
        end_taking(call, &known);
        *raised = store(&known, sum_of_calls(call->pool, NULL).charged, reserved, version != atomic_load(&versions[call->device]));
    } else {
        is_stored = false;
    }
    hami_unlock(&mutex, HAMI_RANK_POOLS);
    return is_stored;
}

/* Ask what the pool has reserved, store it, and end the call. Returns what had to be charged in addition to what was. */
static uint64_t settle(struct call *call)
{
    uint64_t raised = 0, version;
    cuuint64_t reserved;

    hami_region_slot();
    for (int attempt = 1;; attempt++) {
        version = atomic_load(&versions[call->device]);
        if (!reserved_bytes(call->pool, &reserved)) {
            hami_region_discharge(call->device, atomic_load(&call->charged));
            end(call);
            return 0;
        }
        if (try_to_store(call, reserved, version, attempt == ATTEMPTS, &raised))
            return raised;
    }
}

void hami_pool_know(uint64_t pool, int device)
{
    struct hami_charge known, replaced = {.key = 0};

    atomic_store(&hami_pools_are_used, true);
    hami_lock(&mutex, HAMI_RANK_POOLS);
    if ((!hami_charges_find(&hami_pools, pool, &known) || known.kind != LIVE) &&
        hami_charges_put(&hami_pools, (struct hami_charge){.key = pool, .device = (int16_t)device, .references = 1}, &replaced) &&
        replaced.key)
        hami_region_discharge(replaced.device, replaced.bytes);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
}

int hami_pool_device(uint64_t pool)
{
    return hami_charges_device(&hami_pools, pool);
}

/* Make a pool give up what it does not use, unless others take memory from it. Returns whether that was anything. */
static bool trim(const struct hami_charge *pool)
{
    struct hami_charge after = {.bytes = 0};
    struct call call;

    if (!pool->bytes || !begin(&call, pool->key, TRIM))
        return false;
    give_up_unused(pool->key);
    settle(&call);
    return !hami_charges_find(&hami_pools, pool->key, &after) || after.bytes < pool->bytes;
}

bool hami_pools_trim(int device)
{
    struct hami_charges_cursor cursor = {0};
    struct hami_charge pool;
    bool is_anything = false;

    if (!atomic_load_explicit(&hami_pools_are_used, memory_order_relaxed))
        return false;
    while (hami_charges_next(&hami_pools, &cursor, &pool))
        if (pool.device == device)
            is_anything |= trim(&pool);
    return is_anything;
}

static void refresh(uint64_t pool, enum purpose purpose)
{
    struct call call;

    if (begin(&call, pool, purpose))
        settle(&call);
}

void hami_pools_refresh_used(int device)
{
    struct hami_charges_cursor cursor = {0};
    struct hami_charge pool;

    if (hami_inside)
        return;
    while (hami_charges_next(&hami_pools, &cursor, &pool))
        if (device < 0 || pool.device == device)
            refresh(pool.key, device < 0 ? ASK_ALONE : ASK);
}

/*
 * Return what the pool must reserve in addition for `call`, as far as its numbers and its step tell. `is_current`: `used` is what
 * the driver said at the call's version; otherwise all that is reserved counts as used.
 */
static uint64_t growth_of(const struct call *call, const struct hami_charge *known, uint64_t used, bool is_current)
{
    struct sum others = sum_of_calls(call->pool, call);
    uint64_t reserved = known->bytes + others.charged, step = steps[is_of_graphs(call->pool)], growth;

    if (!is_current)
        used = reserved;
    if (others.is_trimmed && used < reserved)
        reserved = used;
    if (__builtin_add_overflow(used, others.bytes, &used) || __builtin_add_overflow(used, call->bytes, &used))
        return UINT64_MAX;
    growth = used > reserved ? hami_whole_blocks(used - reserved) : 0;
    return growth < UINT64_MAX - step ? (growth + step - 1) / step * step : growth;
}

static void set_bytes(struct call *call, size_t bytes)
{
    hami_lock(&mutex, HAMI_RANK_POOLS);
    call->bytes = bytes;
    call->version = atomic_load(&versions[call->device]);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
}

static uint64_t needed_growth(struct call *call, size_t bytes)
{
    struct hami_charge known;
    uint64_t growth = 0;
    bool is_current = false;
    cuuint64_t used;

    if (!hami_region_limit(call->device)) {
        set_bytes(call, bytes);
        return 0;
    }
    for (int attempt = 1; attempt <= ATTEMPTS && !is_current; attempt++) {
        uint64_t version = atomic_load(&versions[call->device]);
        bool is_known = used_bytes(call->pool, &used);

        hami_lock(&mutex, HAMI_RANK_POOLS);
        is_current = version == atomic_load(&versions[call->device]);
        if ((is_current || attempt == ATTEMPTS) && hami_charges_find(&hami_pools, call->pool, &known)) {
            call->bytes = bytes;
            call->version = version;
            growth = growth_of(call, &known, used, is_known && is_current);
        }
        hami_unlock(&mutex, HAMI_RANK_POOLS);
    }
    return growth;
}

/* Whether a refused growth may fit when the calls in progress have ended, because they are counted twice until then. */
static bool may_fit_later(const struct call *call, uint64_t growth)
{
    uint64_t limit = hami_region_limit(call->device), used = hami_region_used(call->device), counted_twice;
    struct sum others;

    hami_lock(&mutex, HAMI_RANK_POOLS);
    others = sum_of_calls(call->pool, call);
    counted_twice = others.bytes + others.charged + steps[is_of_graphs(call->pool)];
    hami_unlock(&mutex, HAMI_RANK_POOLS);
    return growth <= limit && used + growth <= limit + counted_twice;
}

/* Charge a pool's growth. Returns false if it does not fit even after the device's pools gave up what they do not use. */
static bool charge_growth(struct call *call, size_t bytes)
{
    int waited_ms = 0, trims = 0;
    bool is_more;

    do {
        uint64_t growth = needed_growth(call, bytes);

        if (!growth || hami_region_charge(call->device, growth)) {
            atomic_store(&call->charged, growth);
            return true;
        }
        set_bytes(call, 0);
        is_more = hami_pools_trim(call->device) && trims++ < ATTEMPTS;
        is_more |= may_fit_later(call, growth) && wait_for_others(call->pool, call, true, &waited_ms);
    } while (is_more);
    return false;
}

bool hami_pools_are_within(int device)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit || hami_region_used(device) <= limit)
        return true;
    hami_region_sweep();
    hami_pools_trim(device);
    return hami_region_used(device) <= limit;
}

enum hami_growth hami_pool_grow(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result)
{
    struct call call;

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!begin(&call, pool, TAKE))
        return HAMI_GROWTH_ENDED;
    if (!charge_growth(&call, bytes)) {
        end(&call);
        return HAMI_GROWTH_REFUSED;
    }
    *result = HAMI_INSIDE(take(arguments));
    return !settle(&call) || hami_pools_are_within(call.device) ? HAMI_GROWTH_WITHIN : HAMI_GROWTH_BEYOND;
}

void hami_pool_retain(uint64_t pool)
{
    hami_charges_retain(&hami_pools, pool);
}

void hami_pool_drop(uint64_t pool)
{
    struct hami_charge last;

    hami_lock(&mutex, HAMI_RANK_POOLS);
    if (hami_charges_drop(&hami_pools, pool, &last) && last.device >= 0)
        hami_region_discharge(last.device, last.bytes);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
}

static void mark(uint64_t pool, int16_t kind)
{
    hami_lock(&mutex, HAMI_RANK_POOLS);
    hami_charges_mark(&hami_pools, pool, kind);
    hami_unlock(&mutex, HAMI_RANK_POOLS);
}

/* Before the pool is destroyed it is asked what it keeps for allocations that remain. From then on it is not asked any more. */
CUresult hami_pool_destroy(CUmemoryPool pool, __typeof__(&cuMemPoolDestroy) destroy)
{
    uint64_t key = HAMI_POOL_OF(pool);
    struct hami_charge known;
    int waited_ms = 0;
    CUresult result;

    if (!hami_charges_find(&hami_pools, key, &known))
        return HAMI_INSIDE(destroy(pool));
    trim(&known);
    mark(key, ENDED);
    wait_for_others(key, NULL, false, &waited_ms);
    result = HAMI_INSIDE(destroy(pool));
    if (result == CUDA_SUCCESS)
        hami_pool_drop(key);
    else
        mark(key, known.kind);
    return result;
}

void hami_pools_end_device(int device, void (*discharge)(const struct hami_charge *charge))
{
    struct hami_charges_cursor cursor = {0};
    struct hami_charge pool;

    if (!atomic_load(&hami_pools_are_used))
        return;
    while (hami_charges_next(&hami_pools, &cursor, &pool))
        if (pool.device == device)
            hami_charges_take_owned(&hami_pointers, pool.key, discharge);
    hami_pools_refresh();
}

void hami_pools_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    calls = NULL;
    atomic_store(&hami_pools_are_used, false);
}
