#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>

#include "blocks.h"
#include "charges.h"
#include "hooks.h"
#include "inventory.h"
#include "region.h"

/* The `kind` of a pool's charge: whether the driver may still be asked about it. */
enum { LIVE, ENDED };

/*
 * The steps in which pools grow. NVIDIA's grow by 32 MiB: RESERVED_MEM_CURRENT shows that after an allocation of one byte. Whole
 * steps are charged before the driver is asked, so that it never takes more than the limit. The last step that was seen counts, for
 * pools and for graphs' memory separately.
 */
#define FIRST_STEP ((uint64_t)32 << 20)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t steps[] = {FIRST_STEP, FIRST_STEP};
static _Atomic bool is_used;

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

static bool reserved_bytes(uint64_t pool, cuuint64_t *bytes)
{
    if (is_of_graphs(pool))
        return hami_real.cuDeviceGetGraphMemAttribute &&
               HAMI_INSIDE(hami_real.cuDeviceGetGraphMemAttribute(ordinal_of(pool), CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
                                                                  bytes)) == CUDA_SUCCESS;
    return hami_real.cuMemPoolGetAttribute &&
           HAMI_INSIDE(hami_real.cuMemPoolGetAttribute(handle_of(pool), CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, bytes)) ==
               CUDA_SUCCESS;
}

static bool used_bytes(uint64_t pool, cuuint64_t *bytes)
{
    if (is_of_graphs(pool))
        return hami_real.cuDeviceGetGraphMemAttribute &&
               HAMI_INSIDE(hami_real.cuDeviceGetGraphMemAttribute(ordinal_of(pool), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, bytes)) ==
                   CUDA_SUCCESS;
    return hami_real.cuMemPoolGetAttribute &&
           HAMI_INSIDE(hami_real.cuMemPoolGetAttribute(handle_of(pool), CU_MEMPOOL_ATTR_USED_MEM_CURRENT, bytes)) == CUDA_SUCCESS;
}

static void give_up_unused(uint64_t pool)
{
    if (is_of_graphs(pool) && hami_real.cuDeviceGraphMemTrim)
        HAMI_INSIDE(hami_real.cuDeviceGraphMemTrim(ordinal_of(pool)));
    else if (!is_of_graphs(pool) && hami_real.cuMemPoolTrimTo)
        HAMI_INSIDE(hami_real.cuMemPoolTrimTo(handle_of(pool), 0));
}

void hami_pool_know(uint64_t pool, int device)
{
    struct hami_charge known, replaced;

    atomic_store(&is_used, true);
    if (hami_charges_find(&hami_pools, pool, &known) && known.kind == LIVE)
        return;
    if (hami_charges_put(&hami_pools, (struct hami_charge){.key = pool, .device = (int16_t)device, .references = 1}, &replaced) &&
        replaced.key)
        hami_region_discharge(replaced.device, replaced.bytes);
}

int hami_pool_device(uint64_t pool)
{
    return hami_charges_device(&hami_pools, pool);
}

static void refresh(struct hami_charge *pool, void *unused)
{
    cuuint64_t reserved;

    (void)unused;
    if (pool->device < 0 || pool->kind != LIVE || !reserved_bytes(pool->key, &reserved))
        return;
    if (reserved > pool->bytes)
        hami_region_charge_anyway(pool->device, reserved - pool->bytes);
    else
        hami_region_discharge(pool->device, pool->bytes - reserved);
    pool->bytes = reserved;
}

struct trimming {
    int device;
    bool is_anything;
};

static void trim(struct hami_charge *pool, void *context)
{
    struct trimming *trimming = context;
    uint64_t before = pool->bytes;

    if (pool->device != trimming->device || pool->kind != LIVE || !before)
        return;
    give_up_unused(pool->key);
    refresh(pool, NULL);
    trimming->is_anything |= pool->bytes < before;
}

static bool trim_locked(int device)
{
    struct trimming trimming = {.device = device};

    hami_charges_each(&hami_pools, trim, &trimming);
    return trimming.is_anything;
}

bool hami_pools_trim(int device)
{
    bool is_anything;

    if (!atomic_load_explicit(&is_used, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&mutex);
    is_anything = trim_locked(device);
    pthread_mutex_unlock(&mutex);
    return is_anything;
}

void hami_pools_refresh(void)
{
    if (__builtin_expect(!atomic_load_explicit(&is_used, memory_order_relaxed), 1) || hami_inside)
        return;
    pthread_mutex_lock(&mutex);
    hami_charges_each(&hami_pools, refresh, NULL);
    pthread_mutex_unlock(&mutex);
}

/* Return what a pool must reserve in addition, as far as its numbers and its step tell. */
static uint64_t needed_growth(const struct hami_charge *pool, uint64_t bytes)
{
    cuuint64_t used;
    uint64_t step = steps[is_of_graphs(pool->key)], growth;

    if (!hami_region_limit(pool->device))
        return 0;
    if (!used_bytes(pool->key, &used))
        used = pool->bytes;
    if (__builtin_add_overflow(used, bytes, &used))
        return UINT64_MAX;
    growth = used > pool->bytes ? hami_whole_blocks(used - pool->bytes) : 0;
    return growth < UINT64_MAX - step ? (growth + step - 1) / step * step : growth;
}

static void learn_step(uint64_t pool, uint64_t grown, uint64_t expected)
{
    uint64_t *step = &steps[is_of_graphs(pool)];

    if (grown && (grown > expected || grown < *step))
        *step = grown;
}

/* Charge a pool's growth. Returns false if it does not fit even after the device's pools gave up what they do not use. */
static bool charge_growth(uint64_t pool, size_t bytes, uint64_t *growth)
{
    struct hami_charge known;

    for (int attempt = 0; attempt < 2; attempt++) {
        if (!hami_charges_find(&hami_pools, pool, &known))
            break;
        *growth = needed_growth(&known, bytes);
        if (!*growth || hami_region_charge(known.device, *growth))
            return true;
        if (attempt == 0 && !trim_locked(known.device))
            break;
    }
    return false;
}

/* Settle a pool's charge by what it has reserved. Returns false if that passes the limit. */
static bool settle_growth(uint64_t pool, uint64_t growth)
{
    int device = hami_pool_device(pool);
    cuuint64_t reserved;
    uint64_t charged;

    if (!reserved_bytes(pool, &reserved)) {
        hami_region_discharge(device, growth);
        return true;
    }
    charged = hami_charges_resize(&hami_pools, pool, reserved);
    learn_step(pool, reserved > charged ? reserved - charged : 0, growth);
    charged += growth;
    if (reserved <= charged) {
        hami_region_discharge(device, charged - reserved);
        return true;
    }
    if (hami_region_charge(device, reserved - charged))
        return true;
    hami_region_charge_anyway(device, reserved - charged);
    return false;
}

enum hami_growth hami_pool_grow(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result)
{
    enum hami_growth outcome = HAMI_GROWTH_REFUSED;
    uint64_t growth;

    *result = CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&mutex);
    if (charge_growth(pool, bytes, &growth)) {
        *result = HAMI_INSIDE(take(arguments));
        outcome = settle_growth(pool, growth) ? HAMI_GROWTH_WITHIN : HAMI_GROWTH_BEYOND;
    }
    pthread_mutex_unlock(&mutex);
    return outcome;
}

void hami_pool_retain(uint64_t pool)
{
    hami_charges_retain(&hami_pools, pool);
}

void hami_pool_drop(uint64_t pool)
{
    struct hami_charge last;

    if (hami_charges_drop(&hami_pools, pool, &last) && last.device >= 0)
        hami_region_discharge(last.device, last.bytes);
}

static void end_handle(struct hami_charge *pool, void *context)
{
    if (pool->key == HAMI_POOL_OF(context))
        pool->kind = ENDED;
}

/*
 * The lock keeps others from asking about the pool while it is destroyed. Before that it is asked what it keeps for allocations
 * that remain.
 */
CUresult hami_pool_destroy(CUmemoryPool pool, __typeof__(&cuMemPoolDestroy) destroy)
{
    struct hami_charge known;
    CUresult result;

    if (!hami_charges_find(&hami_pools, HAMI_POOL_OF(pool), &known))
        return HAMI_INSIDE(destroy(pool));
    pthread_mutex_lock(&mutex);
    if (known.bytes)
        give_up_unused(HAMI_POOL_OF(pool));
    hami_charges_each(&hami_pools, refresh, NULL);
    result = HAMI_INSIDE(destroy(pool));
    if (result == CUDA_SUCCESS)
        hami_charges_each(&hami_pools, end_handle, pool);
    pthread_mutex_unlock(&mutex);
    if (result == CUDA_SUCCESS)
        hami_pool_drop(HAMI_POOL_OF(pool));
    return result;
}

struct listing {
    uint64_t pools[64];
    int device, count;
};

static void list_of_device(struct hami_charge *pool, void *context)
{
    struct listing *listing = context;

    if (pool->device == listing->device && listing->count < (int)(sizeof(listing->pools) / sizeof(listing->pools[0])))
        listing->pools[listing->count++] = pool->key;
}

void hami_pools_end_device(int device, void (*discharge)(const struct hami_charge *charge))
{
    struct listing listing = {.device = device};

    if (!atomic_load(&is_used))
        return;
    hami_charges_each(&hami_pools, list_of_device, &listing);
    for (int index = 0; index < listing.count; index++)
        hami_charges_take_owned(&hami_pointers, listing.pools[index], discharge);
    hami_pools_refresh();
}

void hami_pools_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    atomic_store(&is_used, false);
}
