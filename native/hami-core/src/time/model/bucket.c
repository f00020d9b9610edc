#include "bucket.h"

#include <stdatomic.h>

/* Processes read the clock before they read the word, so another's debit may be newer, by as long as a preemption lasts. */
#define CLOCK_TOLERANCE_NS 1000000000u

/* The largest debit, so that no sum overflows. */
#define DEBIT_MAX_NS ((int64_t)HAMI_BUCKET_OWED_NS)

static uint64_t plausible(uint64_t paid_at, uint64_t now_ns)
{
    uint64_t earliest = now_ns > HAMI_BUCKET_KEPT_NS ? now_ns - HAMI_BUCKET_KEPT_NS : 0;

    if (paid_at < earliest || paid_at > now_ns + HAMI_BUCKET_OWED_NS + CLOCK_TOLERANCE_NS)
        return earliest;
    return paid_at;
}

static uint64_t moved(uint64_t paid_at, uint64_t now_ns, int64_t gpu_ns, unsigned percent)
{
    int64_t after;

    if (gpu_ns > DEBIT_MAX_NS)
        gpu_ns = DEBIT_MAX_NS;
    if (gpu_ns < -DEBIT_MAX_NS)
        gpu_ns = -DEBIT_MAX_NS;
    after = (int64_t)plausible(paid_at, now_ns) + gpu_ns * 100 / (int64_t)percent;
    if (after < 0)
        return 0;
    if ((uint64_t)after > now_ns + HAMI_BUCKET_OWED_NS)
        return now_ns + HAMI_BUCKET_OWED_NS;
    return plausible((uint64_t)after, now_ns);
}

void hami_bucket_debit(_Atomic uint64_t *paid_at, uint64_t now_ns, int64_t gpu_ns, unsigned percent)
{
    uint64_t before = atomic_load_explicit(paid_at, memory_order_relaxed);

    while (!atomic_compare_exchange_weak_explicit(paid_at, &before, moved(before, now_ns, gpu_ns, percent), memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

uint64_t hami_bucket_kept_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns)
{
    uint64_t at = plausible(atomic_load_explicit(paid_at, memory_order_relaxed), now_ns);

    return at < now_ns ? now_ns - at : 0;
}

uint64_t hami_bucket_wait_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns)
{
    uint64_t at = plausible(atomic_load_explicit(paid_at, memory_order_relaxed), now_ns);

    return at > now_ns ? at - now_ns : 0;
}
