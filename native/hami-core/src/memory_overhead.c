#include "memory_overhead.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "charges.h"
#include "log.h"
#include "memory.h"
#include "memory_pool.h"
#include "process.h"
#include "region.h"

/* What a context can cost: less is noise, more is a neighbour's allocation. NVIDIA's take 100 to 600 MiB. */
#define CONTEXT_LEAST ((uint64_t)16 << 20)
#define CONTEXT_MOST ((uint64_t)1 << 30)

static struct {
    _Atomic int contexts;
    uint64_t each_bytes;      /* of one context, as last known */
    uint64_t context, module; /* as the region has them */
    uint64_t last_measured;   /* both together */
    _Atomic time_t measured_at;
} devices[HAMI_DEVICES_MAX];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_stale[HAMI_DEVICES_MAX] = {[0 ... HAMI_DEVICES_MAX - 1] = true};

/*
 * Bytes NVML counts for this process beyond its charges. Charges are made before and given back after the driver acts, so the answer
 * is never too large, and exact when nothing was charged meanwhile: else it is asked once more.
 */
static bool measure(int device, uint64_t *bytes)
{
    for (int attempt = 0; attempt < 2; attempt++) {
        uint64_t charged, counted;

        hami_pools_refresh();
        charged = hami_region_own_data(device);
        if (!hami_nvml_own_bytes(device, &counted))
            return false;
        *bytes = counted > charged ? counted - charged : 0;
        if (charged == hami_region_own_data(device))
            break;
    }
    return true;
}

/* The caller of this and of what counts holds the mutex. */
static void state_locked(int device, uint64_t context, uint64_t module)
{
    devices[device].context = context;
    devices[device].module = module;
    hami_region_state_context(device, context);
    hami_region_state_module(device, module);
}

/* What a context cost, by the card's own use before and after: neighbours' allocations only add to it, so less is better known. */
static uint64_t estimate(int device, uint64_t card_before)
{
    uint64_t card_after = hami_nvml_card_used(device);
    uint64_t bytes = card_after > card_before ? card_after - card_before : 0;
    uint64_t others = hami_region_least_context(device);

    if (bytes < CONTEXT_LEAST || bytes > CONTEXT_MOST)
        bytes = 0;
    if (others && (!bytes || others < bytes))
        bytes = others;
    return bytes;
}

/* A context came or went. */
static void count_contexts(int device)
{
    uint64_t measured;

    if (devices[device].contexts == 0)
        state_locked(device, 0, 0);
    else if (!measure(device, &measured))
        state_locked(device, (uint64_t)devices[device].contexts * devices[device].each_bytes, devices[device].module);
    else
        state_locked(device, measured > devices[device].module ? measured - devices[device].module : 0, devices[device].module);
    devices[device].last_measured = devices[device].context + devices[device].module;
    if (devices[device].contexts)
        devices[device].each_bytes = devices[device].context / (uint64_t)devices[device].contexts;
}

/* What NVML counted once may have been memory on its way back to the driver: it is believed gone when it is missing twice. */
static void count_modules(int device)
{
    uint64_t measured, bytes, context = devices[device].context;

    if (!measure(device, &measured))
        return;
    bytes = measured > devices[device].last_measured ? measured : devices[device].last_measured;
    devices[device].last_measured = measured;
    if (context > bytes)
        context = bytes;
    state_locked(device, context, bytes - context);
}

/*
 * Count the context that is current, though nobody saw it made: a runtime may reach the driver by ways that are not caught. Where it is
 * the only one that NVML lists, it is this process's.
 */
static void adopt(int device)
{
    struct hami_charge found = {.key = hami_memory_owner(), .device = (int16_t)device}, replaced;
    struct hami_nvml_processes listed, nobody = {.count = 0};
    uint64_t bytes;

    if (!found.key || hami_process_current_device() != device)
        return;
    if (!hami_nvml_is_recognised() && hami_nvml_list(device, &listed))
        hami_nvml_recognise(&nobody, &listed);
    if (!measure(device, &bytes) || !bytes || !hami_charges_put(&hami_contexts, found, &replaced))
        return;
    devices[device].contexts = 1;
    count_contexts(device);
}

static void refresh(int device)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&devices[device].measured_at, time(NULL));
    atomic_store(&is_stale[device], false);
    if (devices[device].contexts == 0)
        adopt(device);
    else
        count_modules(device);
    pthread_mutex_unlock(&mutex);
}

void hami_overhead_refresh(int device)
{
    if (__builtin_expect(atomic_load_explicit(&is_stale[device], memory_order_relaxed), 0))
        refresh(device);
}

void hami_overhead_refresh_if_stale(int device)
{
    if (hami_nvml_is_recognised() && atomic_load(&devices[device].measured_at) != time(NULL))
        refresh(device);
}

void hami_overhead_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset((void *)devices, 0, sizeof(devices));
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        atomic_store(&is_stale[device], true);
    hami_nvml_self_forget();
}

/* Whether the container is within its limit with `more` bytes; the dead and what pools keep unused do not count. */
bool hami_overhead_is_within(int device, uint64_t more)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit || hami_region_used(device) + more <= limit)
        return true;
    hami_region_sweep();
    hami_pools_trim(device);
    return hami_region_used(device) + more <= limit;
}

bool hami_overhead_begin(int device, struct hami_overhead_before *before)
{
    uint64_t expected = devices[device].each_bytes ? devices[device].each_bytes : hami_region_least_context(device);

    if (!hami_overhead_is_within(device, expected)) {
        hami_log(HAMI_LOG_WARNING, "a context refused on device %d: %llu of %llu in use", device,
                 (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
        return false;
    }
    before->processes.count = 0;
    before->card_used = hami_nvml_card_used(device);
    before->current = (CUcontext)(uintptr_t)hami_memory_owner();
    if (!hami_nvml_is_recognised() && !hami_nvml_list(device, &before->processes))
        before->processes.count = HAMI_NVML_PROCESSES_MAX + 1;
    return true;
}

/* Charge for a new context; false when it passes the limit. */
bool hami_overhead_charge(int device, const struct hami_overhead_before *before, CUcontext context)
{
    struct hami_charge made = {.key = (uint64_t)(uintptr_t)context, .device = (int16_t)device}, replaced;
    struct hami_nvml_processes after;
    bool is_listed = !hami_nvml_is_recognised() && before->processes.count <= HAMI_NVML_PROCESSES_MAX && hami_nvml_list(device, &after);

    pthread_mutex_lock(&mutex);
    if (is_listed)
        hami_nvml_recognise(&before->processes, &after);
    if (!hami_nvml_is_recognised() && !devices[device].each_bytes)
        devices[device].each_bytes = estimate(device, before->card_used);
    devices[device].contexts++;
    count_contexts(device);
    pthread_mutex_unlock(&mutex);
    hami_charges_put(&hami_contexts, made, &replaced);
    return hami_overhead_is_within(device, 0);
}

/* Forget a context that is gone. */
void hami_overhead_discharge(CUcontext context)
{
    struct hami_charge made;

    hami_memory_end_context(context);
    if (!hami_charges_take(&hami_contexts, (uint64_t)(uintptr_t)context, &made))
        return;
    pthread_mutex_lock(&mutex);
    devices[made.device].contexts--;
    count_contexts(made.device);
    pthread_mutex_unlock(&mutex);
}

void hami_overhead_came(void)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (devices[device].contexts)
            atomic_store_explicit(&is_stale[device], true, memory_order_relaxed);
}

/* What NVML counted before does not bind any more: something is known to have gone. */
void hami_overhead_went(void)
{
    pthread_mutex_lock(&mutex);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        devices[device].last_measured = 0;
    pthread_mutex_unlock(&mutex);
    hami_overhead_came();
}
