#include "probes.h"

#include "bucket.h"

/* How often a launch looks whether probes have ended: first when a short kernel may have, and then less often the longer they take. */
#define SLEEP_MIN_NS 50000u
#define SLEEP_MAX_NS 1000000u
#define SLEEP_PART 8

/* After so many short probes in a row, others are expected to be short. */
#define SHORT_IN_A_ROW 8u

/* The advance of short probes, in what recent ones cost. */
#define SHORT_ADVANCE 64u

static uint64_t clamp(uint64_t value, uint64_t least, uint64_t most)
{
    return value < least ? least : value > most ? most : value;
}

static uint64_t recent_ns(const struct hami_meter *meter)
{
    return hami_meter_estimate(meter, &meter->probes.cost);
}

uint64_t hami_probes_estimate(const struct hami_meter *meter)
{
    uint64_t recent = recent_ns(meter);

    return recent && recent < HAMI_GUESS_NS ? recent : HAMI_GUESS_NS;
}

bool hami_probes_are_short(const struct hami_meter *meter)
{
    return meter->probes.short_in_a_row >= SHORT_IN_A_ROW;
}

bool hami_probes_are_enough(const struct hami_device_now *now)
{
    const struct hami_gpu_time *shared = hami_gpu_time();

    return shared &&
           (hami_bucket_wait_ns(&shared->probes_paid_at[now->device], now->ns) || hami_meter_is_ahead(now->device, now->ns));
}

uint64_t hami_probes_sleep_ns(const struct hami_device_now *now)
{
    const struct hami_meter *meter = &hami_meters[now->device];
    uint64_t recent = recent_ns(meter), so_far = now->ns - meter->probes.began_ns;

    return clamp((recent && recent < so_far ? recent : so_far) / SLEEP_PART, SLEEP_MIN_NS, SLEEP_MAX_NS);
}

static void debit(const struct hami_device_now *now, int64_t gpu_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (shared && now->percent && gpu_ns)
        hami_bucket_debit(&shared->probes_paid_at[now->device], now->ns, gpu_ns, now->percent);
}

uint64_t hami_probes_begin(const struct hami_device_now *now)
{
    struct hami_meter *meter = &hami_meters[now->device];
    uint64_t advance = hami_probes_are_short(meter) ? clamp(SHORT_ADVANCE * recent_ns(meter), HAMI_ADVANCE_MIN_NS, HAMI_ADVANCE_NS)
                                                    : clamp(recent_ns(meter), HAMI_ADVANCE_NS, HAMI_ADVANCE_MAX_NS);
    uint64_t most = (HAMI_BUCKET_KEPT_NS + HAMI_PATIENCE_NS) / 100 * now->percent;

    advance = advance < most ? advance : most;
    meter->probes.began_ns = now->ns;
    debit(now, (int64_t)advance);
    return advance;
}

void hami_probes_end(const struct hami_device_now *now, uint64_t advance_ns)
{
    debit(now, -(int64_t)advance_ns);
}

void hami_probes_learn(struct hami_meter *meter, uint64_t cost_ns)
{
    hami_kernel_learn(&meter->probes.cost, &(struct hami_sample){cost_ns, cost_ns, cost_ns});
    meter->probes.short_in_a_row = cost_ns < HAMI_GUESS_NS ? meter->probes.short_in_a_row + 1 : 0;
}

void hami_probes_learn_of_long(struct hami_meter *meter)
{
    meter->probes.short_in_a_row = 0;
}
