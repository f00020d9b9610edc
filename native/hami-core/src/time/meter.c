#include "meter.h"

#include <string.h>

#include "bucket.h"
#include "long_run.h"
#include "patient_lock.h"
#include "region.h"
#include "region_map.h"

/* The factor follows the last seconds of what was timed. It starts from the assumption that nothing overlaps. */
#define FACTOR_MEMORY_NS 4000000000u
#define FACTOR_PRIOR_NS 20000000u
#define FACTOR_MIN (HAMI_ONE / 256)
#define FACTOR_MAX (HAMI_ONE * 2)

/* How long the end of a context waits for its device's lock. */
#define LONGEST_WAIT_TO_END_NS 10000000000u

/*
 * Above this scale the container has the device to itself, apart from NVML's rounding. On a shared device a container with more
 * busy processes gets more time slices, so they need not launch one at a time.
 */
#define ALONE_SCALE (HAMI_ONE * 7 / 8)

struct hami_kernels hami_kernels;
struct hami_meter hami_meters[HAMI_DEVICES_MAX];

/* What intervals of this process took, as if it were alone in the container. A child keeps the parent's, which does no harm. */
static struct hami_timeline own_timelines[HAMI_DEVICES_MAX];

static struct hami_patient_lock locks[HAMI_DEVICES_MAX] = {[0 ... HAMI_DEVICES_MAX - 1] =
                                                               HAMI_PATIENT_LOCK(HAMI_RANK_METER, HAMI_WAIT_DRIVER)};

bool hami_meter_lock(int device)
{
    return hami_patient_lock_take(&locks[device], device);
}

bool hami_meter_lock_to_end(int device)
{
    return hami_patient_lock_take_within(&locks[device], device, LONGEST_WAIT_TO_END_NS);
}

bool hami_meter_try_lock(int device)
{
    return hami_patient_lock_try(&locks[device]);
}

void hami_meter_unlock(int device)
{
    hami_patient_lock_give(&locks[device]);
}

void hami_meter_forget_locks(void)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        hami_patient_lock_forget(&locks[device]);
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

static bool has_long_run(const struct hami_gpu_time *shared, int device, uint64_t now_ns)
{
    return hami_long_run_since(&shared->devices[device].long_run, now_ns) != 0;
}

const _Atomic uint64_t *hami_meter_bucket(int device, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (!shared)
        return NULL;
    return has_long_run(shared, device, now_ns) ? &shared->paid_at_beside[device] : &shared->devices[device].paid_at;
}

static void debit(_Atomic uint64_t *paid_at, const struct hami_device_now *now, int64_t gpu_ns)
{
    if (now->percent && gpu_ns)
        hami_bucket_debit(paid_at, now->ns, gpu_ns, now->percent);
}

void hami_meter_debit(const struct hami_device_now *now, int64_t gpu_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    hami_meter_debit_first(now, gpu_ns);
    if (shared && has_long_run(shared, now->device, now->ns))
        hami_meter_debit_second(now, gpu_ns);
}

void hami_meter_debit_first(const struct hami_device_now *now, int64_t gpu_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (shared)
        debit(&shared->devices[now->device].paid_at, now, gpu_ns);
}

void hami_meter_debit_second(const struct hami_device_now *now, int64_t gpu_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    if (shared)
        debit(&shared->paid_at_beside[now->device], now, gpu_ns);
}

/* Return GPU time in nanoseconds as a debit, at most what a bucket can owe. */
static int64_t owed(const struct hami_device_now *now, uint64_t gpu_ns)
{
    uint64_t most = HAMI_BUCKET_OWED_NS / 100 * now->percent;

    return (int64_t)(gpu_ns < most ? gpu_ns : most);
}

void hami_meter_set_aside(const struct hami_device_now *now, uint64_t since_ns, uint64_t debited_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    struct hami_meter *meter = &hami_meters[now->device];
    _Atomic uint64_t *beside;

    meter->set_aside_ns += debited_ns;
    if (!shared)
        return;
    beside = &shared->paid_at_beside[now->device];
    if (!has_long_run(shared, now->device, now->ns)) {
        atomic_store(beside, atomic_load(&shared->devices[now->device].paid_at));
        debited_ns = meter->set_aside_ns;
    }
    hami_long_run_note(&shared->devices[now->device].long_run, since_ns, now->ns);
    debit(beside, now, -owed(now, debited_ns));
}

void hami_meter_end_aside(const struct hami_device_now *now, uint64_t debited_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    struct hami_meter *meter = &hami_meters[now->device];
    _Atomic uint64_t paid_at;
    _Atomic uint64_t *beside;
    uint64_t known;

    meter->set_aside_ns -= debited_ns;
    if (!shared || !now->percent)
        return;
    paid_at = atomic_load(&shared->devices[now->device].paid_at);
    debit(&paid_at, now, -owed(now, meter->set_aside_ns));
    beside = &shared->paid_at_beside[now->device];
    known = atomic_load(beside);
    while (known < paid_at && !atomic_compare_exchange_weak(beside, &known, paid_at))
        continue;
}

void hami_meter_count(int device, uint64_t gpu_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    atomic_fetch_add_explicit(&hami_meters[device].own_ns, gpu_ns, memory_order_relaxed);
    if (shared)
        atomic_fetch_add_explicit(&shared->devices[device].charged_ns, gpu_ns, memory_order_relaxed);
}

static uint64_t scale_of(int device)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t scale = shared ? atomic_load_explicit(&shared->devices[device].scale, memory_order_relaxed) : 0;

    return !scale || scale > 2 * HAMI_ONE ? HAMI_ONE : scale;
}

uint64_t hami_meter_others_ns(int device)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    return shared ? atomic_load_explicit(&shared->devices[device].charged_ns, memory_order_relaxed) - hami_meters[device].own_ns
                  : 0;
}

/* Return this process's index among the container's; -1 if it has no slot in the region. */
static int own_index(void)
{
    struct hami_region *region = hami_region();
    ptrdiff_t index = hami_region_slot() - region->procs;

    return index >= 0 && index < HAMI_SLOTS_MAX ? (int)index : -1;
}

static struct hami_process_turns *turns_of(int device)
{
    struct hami_gpu_time *shared = hami_gpu_time();

    return shared && own_index() >= 0 ? &shared->turns[device] : NULL;
}

void hami_meter_use(int device, int64_t gpu_ns)
{
    struct hami_process_turns *turns = turns_of(device);

    if (turns)
        hami_process_turns_use(turns, own_index(), gpu_ns);
}

void hami_meter_prepay(const struct hami_device_now *now, uint64_t estimate_ns)
{
    hami_meter_use(now->device, (int64_t)estimate_ns);
    hami_meter_debit(now, (int64_t)estimate_ns);
}

static bool must_yield(int device, bool is_strict, uint64_t now_ns)
{
    struct hami_process_turns *turns = turns_of(device);
    int count = atomic_load(&hami_region()->proc_num);

    return turns &&
           hami_process_turns_must_yield(turns, own_index(), count < HAMI_SLOTS_MAX ? count : HAMI_SLOTS_MAX, is_strict, now_ns);
}

bool hami_meter_must_yield(int device, uint64_t now_ns)
{
    return must_yield(device, scale_of(device) > ALONE_SCALE, now_ns);
}

bool hami_meter_is_ahead(int device, uint64_t now_ns)
{
    return must_yield(device, false, now_ns);
}

void hami_meter_wait(int device, uint64_t until_ns)
{
    struct hami_process_turns *turns = turns_of(device);

    if (turns)
        hami_process_turns_wait(turns, own_index(), until_ns);
}

void hami_meter_pass(int device, uint64_t until_ns)
{
    struct hami_process_turns *turns = turns_of(device);

    if (turns)
        hami_process_turns_pass(turns, own_index(), until_ns);
}

uint64_t hami_meter_priced(int device, uint64_t busy_ns)
{
    return busy_ns * scale_of(device) / HAMI_ONE;
}

/*
 * Return how far intervals are trusted. If the container has the device to itself, they are exact. The more of the container's busy
 * time belongs to others, the less an interval says, because one that waits for its time slice is many times as long as its work.
 */
static uint64_t belief(int device)
{
    uint64_t scale = scale_of(device), squared = scale * scale / HAMI_ONE;

    return scale < HAMI_ONE ? squared * squared / HAMI_ONE : HAMI_ONE;
}

uint64_t hami_meter_believed(int device, uint64_t ns)
{
    return ns * belief(device) / HAMI_ONE;
}

uint64_t hami_meter_pay(int device, uint64_t from_ns, uint64_t to_ns, uint64_t *prepaid_ns, uint64_t *due_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t price, part, covered;

    if (!shared || to_ns <= from_ns)
        return 0;
    price = hami_meter_priced(device, hami_timeline_mark(&shared->timelines[device], from_ns, to_ns));
    part = hami_meter_believed(device, price);
    covered = part < *prepaid_ns ? part : *prepaid_ns;
    *prepaid_ns -= covered;
    *due_ns += part - covered;
    hami_meter_count(device, part);
    return price;
}

uint64_t hami_meter_own(int device, uint64_t from_ns, uint64_t to_ns)
{
    return hami_meter_priced(device, hami_timeline_mark(&own_timelines[device], from_ns, to_ns));
}

void hami_meter_keep_estimate(int device, uint64_t estimate_ns, uint64_t now_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t length = hami_meter_occupied_ns(&hami_meters[device], estimate_ns);

    if (shared && estimate_ns)
        hami_timeline_mark(&shared->timelines[device], now_ns > length ? now_ns - length : 0, now_ns);
    hami_meter_count(device, estimate_ns);
}

void hami_meter_guess(struct hami_kernel *kernel)
{
    if (kernel && !atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed))
        hami_kernel_learn(kernel, &(struct hami_sample){HAMI_GUESS_NS, HAMI_GUESS_NS, HAMI_GUESS_NS});
}

/*
 * The factor is the container's: of overlapping intervals the one that is reported first is charged, and the others cost nothing.
 */
void hami_meter_learn(int device, uint64_t alone_ns, uint64_t cost_ns)
{
    struct hami_gpu_time *shared = hami_gpu_time();
    uint64_t alone, cost, factor;

    if (!shared)
        return;
    alone = atomic_fetch_add(&shared->devices[device].alone_ns, alone_ns) + alone_ns;
    cost = atomic_fetch_add(&shared->devices[device].cost_ns, cost_ns) + cost_ns;
    if (alone > FACTOR_MEMORY_NS) {
        bool is_too_long = alone > 2 * (uint64_t)FACTOR_MEMORY_NS;

        atomic_store(&shared->devices[device].alone_ns, is_too_long ? FACTOR_MEMORY_NS : alone / 2);
        atomic_store(&shared->devices[device].cost_ns, is_too_long ? FACTOR_MEMORY_NS * cost_ns / (alone_ns + 1) : cost / 2);
    }
    factor = (cost + FACTOR_PRIOR_NS) * HAMI_ONE / (alone + FACTOR_PRIOR_NS);
    factor = factor < FACTOR_MIN ? FACTOR_MIN : factor > FACTOR_MAX ? FACTOR_MAX : factor;
    atomic_store_explicit(&hami_meters[device].factor, factor, memory_order_relaxed);
}
