#include "meter.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#include "bucket.h"
#include "limiter.h"

/* The factor follows the last half second or second of timed work, and begins with the belief that nothing overlaps. */
#define FACTOR_MEMORY_NS 500000000u
#define FACTOR_PRIOR_NS 20000000u
#define FACTOR_MIN (HAMI_ONE / 256)
#define FACTOR_MAX (HAMI_ONE * 2)

struct hami_kernels hami_kernels;
struct hami_meter hami_meters[HAMI_DEVICES_MAX];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void hami_meter_lock(void)
{
    pthread_mutex_lock(&mutex);
}

void hami_meter_unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

void hami_meter_unlock_in_child(void)
{
    pthread_mutex_init(&mutex, NULL);
}

void hami_meter_forget(void)
{
    memset(&hami_kernels, 0, sizeof(hami_kernels));
    memset(hami_meters, 0, sizeof(hami_meters));
}

uint64_t hami_meter_occupied_ns(const struct hami_meter *meter, uint64_t estimate_ns)
{
    uint64_t factor = atomic_load_explicit(&meter->factor, memory_order_relaxed);

    return factor ? estimate_ns * HAMI_ONE / factor : estimate_ns;
}

void hami_meter_debit(int device, uint64_t now_ns, int64_t gpu_ns)
{
    unsigned percent = hami_limiter_percent(device);
    struct hami_gpu_time *shared = hami_gpu_time();

    if (percent && shared && gpu_ns)
        hami_bucket_debit(&shared->devices[device].paid_at, now_ns, gpu_ns, percent);
}

uint64_t hami_meter_pay(int device, uint64_t from_ns, uint64_t to_ns, uint64_t *prepaid_ns, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t scale, price, covered;

    if (!shared || to_ns <= from_ns)
        return 0;
    scale = atomic_load_explicit(&shared->devices[device].scale, memory_order_relaxed);
    if (!scale || scale > 2 * HAMI_ONE)
        scale = HAMI_ONE;
    price = hami_timeline_mark(&shared->timelines[device], from_ns, to_ns) * scale / HAMI_ONE;
    covered = price < *prepaid_ns ? price : *prepaid_ns;
    *prepaid_ns -= covered;
    atomic_fetch_add_explicit(&hami_meters[device].own_ns, price, memory_order_relaxed);
    hami_meter_debit(device, now_ns, (int64_t)(price - covered));
    return price;
}

void hami_meter_let_stand(int device, uint64_t estimate_ns, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t length = hami_meter_occupied_ns(&hami_meters[device], estimate_ns);

    if (shared && estimate_ns)
        hami_timeline_mark(&shared->timelines[device], now_ns > length ? now_ns - length : 0, now_ns);
    atomic_fetch_add_explicit(&hami_meters[device].own_ns, estimate_ns, memory_order_relaxed);
}

/* The factor is the container's: of overlapping spans whoever reports first pays, and the others' cost nothing. */
void hami_meter_learn(int device, uint64_t timed_ns, uint64_t cost_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t timed, cost, factor;

    if (!shared)
        return;
    timed = atomic_fetch_add(&shared->devices[device].timed_ns, timed_ns) + timed_ns;
    cost = atomic_fetch_add(&shared->devices[device].cost_ns, cost_ns) + cost_ns;
    if (timed > FACTOR_MEMORY_NS) {
        bool is_too_long = timed > 2 * (uint64_t)FACTOR_MEMORY_NS;

        atomic_store(&shared->devices[device].timed_ns, is_too_long ? FACTOR_MEMORY_NS : timed / 2);
        atomic_store(&shared->devices[device].cost_ns, is_too_long ? FACTOR_MEMORY_NS * cost_ns / (timed_ns + 1) : cost / 2);
    }
    factor = (cost + FACTOR_PRIOR_NS) * HAMI_ONE / (timed + FACTOR_PRIOR_NS);
    factor = factor < FACTOR_MIN ? FACTOR_MIN : factor > FACTOR_MAX ? FACTOR_MAX : factor;
    atomic_store_explicit(&hami_meters[device].factor, factor, memory_order_relaxed);
}
