#include "region.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "liveness.h"
#include "lock_rank.h"
#include "log.h"
#include "options.h"
#include "region_file.h"
#include "region_limits.h"
#include "region_map.h"
#include "slot_lock.h"
#include "waits.h"

/*
 * The pid in a slot that is being emptied under the lock. No process has it, so if its writer dies the next process empties the
 * slot.
 */
enum { NO_PROCESS = -1 };

static struct hami_slot *_Atomic own_slot;
static struct hami_slot slot_outside; /* this process's slot when the region is full */
static pthread_mutex_t claim_mutex = PTHREAD_MUTEX_INITIALIZER;

/* Slots */

/*
 * The start time is left: it means nothing without the tag, and another process may have read the tag already. So is what the first
 * slot records of the container.
 */
static void clear_use(struct hami_slot *slot)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        atomic_store(&slot->used[device].total, 0);
        atomic_store(&slot->used[device].context, 0);
        atomic_store(&slot->used[device].module, 0);
        atomic_store(&slot->used[device].data, 0);
        atomic_store(&slot->used[device].expected, 0);
        atomic_store(&slot->used[device].contexts, 0);
        atomic_store(&slot->monitor_used[device], 0);
        memset(&slot->device_use[device], 0, offsetof(struct hami_device_use, waiting));
        atomic_store(&slot->device_use[device].waiting, 0);
    }
    atomic_store(&slot->status, HAMI_SLOT_FREE);
    atomic_store(&slot->seqlock, 0);
    atomic_store(&slot->tag, 0);
    atomic_store(&slot->host_pid, 0);
}

/* Clear the use first: a slot without an owner must not count. A process that wants the slot waits until its pid is 0. */
static void empty_slot(struct hami_slot *slot)
{
    clear_use(slot);
    atomic_store(&slot->pid, 0);
}

/* Make the count include a slot. Its owner does so again before each charge, in case a process died while it shrank the count. */
static void count_up_to(struct hami_region *region, const struct hami_slot *slot)
{
    int32_t wanted = (int32_t)(slot - region->procs) + 1;
    int32_t count = atomic_load_explicit(&region->proc_num, memory_order_relaxed);

    while (count < wanted && !atomic_compare_exchange_weak(&region->proc_num, &count, wanted))
        continue;
}

/* Drop free slots at the end from the count. A slot that was claimed meanwhile is included again. */
static void shrink(struct hami_region *region)
{
    int32_t before = atomic_load(&region->proc_num);
    int count = hami_region_count(region);
    int end = count;

    while (count > 0 && atomic_load(&region->procs[count - 1].pid) == 0)
        count--;
    if (count == before || !atomic_compare_exchange_strong(&region->proc_num, &before, count))
        return;
    while (end > count && atomic_load(&region->procs[end - 1].pid) == 0)
        end--;
    if (end > count)
        count_up_to(region, &region->procs[end - 1]);
}

/*
 * Empty a slot whose owner is dead. If the slot has a new owner by then, its pid differs and it stays. The caller holds the lock,
 * so no other process empties the slot at the same time, and with it what the next owner has charged.
 */
static bool free_if_dead(struct hami_region *region, int index)
{
    struct hami_slot *slot = &region->procs[index];
    int32_t pid = atomic_load(&slot->pid);

    if (slot == atomic_load(&own_slot) || pid == 0 || hami_slot_is_alive(region, index) ||
        !atomic_compare_exchange_strong(&slot->pid, &pid, NO_PROCESS))
        return false;
    hami_log(HAMI_LOG_DECISION, "process %d has ended; its slot is free", pid);
    empty_slot(slot);
    return true;
}

static int sweep_locked(struct hami_region *region)
{
    int swept = 0;

    for (int index = 0; index < hami_region_count(region); index++)
        swept += free_if_dead(region, index);
    shrink(region);
    return swept;
}

/* Claim a slot whose pid is 0, atomically. It is locked first: another pid namespace would take its new owner for dead. */
static bool take_slot(struct hami_region *region, int index, int32_t pid)
{
    struct hami_slot *slot = &region->procs[index];
    int32_t expected = 0;

    if (atomic_load_explicit(&slot->pid, memory_order_relaxed) != 0 || !hami_slot_lock_take(index))
        return false;
    if (atomic_compare_exchange_strong(&slot->pid, &expected, pid))
        return true;
    hami_slot_lock_give();
    return false;
}

/* Empty a slot whose process has released it and has ended since. Does not wait for the lock, because other slots will do. */
static void free_if_left(struct hami_region *region, int index)
{
    struct hami_slot *slot = &region->procs[index];

    if (atomic_load_explicit(&slot->status, memory_order_relaxed) != HAMI_SLOT_FREE || atomic_load(&slot->pid) == 0 ||
        hami_slot_is_alive(region, index) || !hami_region_try_lock())
        return;
    free_if_dead(region, index);
    hami_region_unlock();
}

/* Claim the first slot that is free or was released. What a released slot holds counts until then. */
static struct hami_slot *take_free_slot(struct hami_region *region, int32_t pid)
{
    for (int index = 0; index < HAMI_SLOTS_MAX; index++) {
        free_if_left(region, index);
        if (!take_slot(region, index, pid))
            continue;
        count_up_to(region, &region->procs[index]);
        return &region->procs[index];
    }
    return NULL;
}

/* Whether a process with a slot has ended. Needs no lock, because a dead process stays dead. */
static bool anyone_died(struct hami_region *region)
{
    for (int index = 0; index < hami_region_count(region); index++)
        if (&region->procs[index] != atomic_load(&own_slot) && atomic_load(&region->procs[index].pid) != 0 &&
            !hami_slot_is_alive(region, index))
            return true;
    return false;
}

/* Empty the slots of dead processes; returns how many. One process does so at a time. */
static int sweep_slots(struct hami_region *region)
{
    int swept;

    if (hami_region_is_private() || !hami_region_lock_to_sweep())
        return 0;
    swept = sweep_locked(region);
    hami_region_unlock();
    return swept;
}

/* What identifies this process. */
struct identity {
    int32_t pid, host_pid;
    uint64_t start_ticks;
};

static struct identity own_identity(void)
{
    int32_t pid = (int32_t)getpid();

    return (struct identity){pid, hami_pid_is_host_pid() ? pid : 0, hami_own_start_ticks()};
}

static void write_identity(struct hami_slot *slot, const struct identity *self)
{
    clear_use(slot);
    atomic_store(&slot->start_ticks, self->start_ticks);
    atomic_store(&slot->tag, self->start_ticks == HAMI_START_UNKNOWN ? 0 : HAMI_SLOT_TAG);
    atomic_store(&slot->host_pid, self->host_pid);
    atomic_store(&slot->pid, self->pid);
    atomic_store(&slot->status, HAMI_SLOT_RUNNING);
}

/*
 * A slot with this process's pid that it did not claim is a predecessor's, or one of a process in another pid namespace, which has
 * it locked. If it counts as alive otherwise, it is this process's own from before exec, or it was never tagged: this process takes
 * it over. If its owner is known to be dead, it is swept.
 */
static struct hami_slot *inherit_slot(struct hami_region *region, int32_t pid)
{
    struct hami_slot *inherited = NULL;
    bool is_dead = false;

    for (int index = 0; index < hami_region_count(region); index++) {
        struct hami_slot *slot = &region->procs[index];

        if (atomic_load_explicit(&slot->pid, memory_order_relaxed) != pid)
            continue;
        if (!hami_slot_is_alive(region, index))
            is_dead = true;
        else if (!inherited && hami_slot_lock_take(index))
            inherited = slot;
    }
    if (is_dead)
        sweep_slots(region);
    return inherited;
}

static struct hami_slot *claim_inside(struct hami_region *region, const struct identity *self)
{
    struct hami_slot *slot = inherit_slot(region, self->pid);

    if (!slot)
        slot = take_free_slot(region, self->pid);
    if (!slot && sweep_slots(region))
        slot = take_free_slot(region, self->pid);
    if (slot)
        write_identity(slot, self);
    return slot;
}

static struct hami_slot *claim_outside(const struct identity *self)
{
    hami_log(HAMI_LOG_ERROR, "%s: has no free slot; other processes do not see the use of this one", hami_options()->region_path);
    write_identity(&slot_outside, self);
    return &slot_outside;
}

static struct hami_slot *claim(void)
{
    struct hami_region *region = hami_region();
    struct identity self = own_identity();
    struct hami_slot *slot;

    if (!region)
        return NULL;
    hami_lock(&claim_mutex, HAMI_RANK_CLAIM);
    slot = atomic_load(&own_slot);
    if (!slot) {
        slot = claim_inside(region, &self);
        if (!slot)
            slot = claim_outside(&self);
        atomic_store(&own_slot, slot);
    }
    hami_unlock(&claim_mutex, HAMI_RANK_CLAIM);
    return slot;
}

struct hami_slot *hami_region_slot_at(int index)
{
    struct hami_region *region = hami_region();

    if (region && index < hami_region_count(region))
        return &region->procs[index];
    return region && index == hami_region_count(region) && atomic_load(&own_slot) == &slot_outside ? &slot_outside : NULL;
}

struct hami_slot *hami_region_slot(void)
{
    struct hami_slot *slot = atomic_load_explicit(&own_slot, memory_order_acquire);

    return slot ? slot : claim();
}

/* The count is written for begin_to_replace_unless_used() in region_file.c. */
bool hami_region_join(void)
{
    struct hami_region *region = hami_region();

    hami_region_slot();
    atomic_fetch_add(&region->proc_num, 0);
    if (!hami_region_wait_for_devices())
        return false;
    hami_limits_read_own(region);
    return true;
}

void hami_region_sweep(void)
{
    struct hami_region *region = hami_region();

    if (region && anyone_died(region))
        sweep_slots(region);
}

void hami_region_sweep_if_stale(void)
{
    static _Atomic time_t swept_at;
    struct hami_region *region = hami_region();
    time_t now = time(NULL);

    if (!region || hami_region_count(region) < 2 || atomic_exchange(&swept_at, now) == now)
        return;
    hami_region_sweep();
}

static bool has_memory(const struct hami_slot *slot)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (atomic_load(&slot->used[device].total))
            return true;
    return false;
}

static bool is_own(const struct hami_slot *slot)
{
    return slot && atomic_load(&slot->pid) == (int32_t)getpid();
}

/* The slot keeps counting until its process is swept. The monitor ignores it from now on. */
void hami_region_release_later(void)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (is_own(slot))
        atomic_store(&slot->status, HAMI_SLOT_FREE);
}

void hami_region_release(void)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (!is_own(slot))
        return;
    hami_region_release_later();
    atomic_store(&own_slot, NULL);
    if (has_memory(slot))
        return;
    empty_slot(slot);
    hami_slot_lock_give();
    shrink(hami_region());
}

void hami_region_forget(void)
{
    struct hami_slot *parents = atomic_load(&own_slot);

    hami_region_file_forget();
    if (parents && (hami_region_is_private() || parents == &slot_outside))
        empty_slot(parents);
    atomic_store(&own_slot, NULL);
    pthread_mutex_init(&claim_mutex, NULL);
}

/* Charging */

uint64_t hami_region_used(int device)
{
    struct hami_region *region = hami_region();
    uint64_t used = atomic_load_explicit(&slot_outside.used[device].total, memory_order_relaxed);

    for (int index = 0; region && index < hami_region_count(region); index++)
        if (atomic_load_explicit(&region->procs[index].pid, memory_order_relaxed))
            used += atomic_load_explicit(&region->procs[index].used[device].total, memory_order_seq_cst);
    return used;
}

uint64_t hami_region_own_data(int device)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    return slot ? atomic_load(&slot->used[device].data) : 0;
}

/* Totals never wrap: at most what the slot holds is subtracted. */
static void subtract(_Atomic uint64_t *value, uint64_t bytes)
{
    uint64_t before = atomic_load(value);

    while (!atomic_compare_exchange_weak(value, &before, before > bytes ? before - bytes : 0))
        continue;
}

void hami_region_discharge(int device, uint64_t bytes)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (!slot || !bytes)
        return;
    subtract(&slot->used[device].data, bytes);
    subtract(&slot->used[device].total, bytes);
}

void hami_region_charge_anyway(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (!slot)
        return;
    atomic_fetch_add(&slot->used[device].total, bytes);
    atomic_fetch_add(&slot->used[device].data, bytes);
}

/* The difference is added in one step, modulo 2^64: the total contains the old values and what was held. */
void hami_region_store_overhead(int device, const struct hami_overhead *overhead, uint64_t held)
{
    struct hami_slot *slot = hami_region_slot();
    struct hami_device_memory *used = slot ? &slot->used[device] : NULL;
    uint64_t before;

    if (!used)
        return;
    before = atomic_exchange(&used->context, overhead->context_bytes) + atomic_exchange(&used->module, overhead->module_bytes);
    atomic_store(&used->contexts, overhead->contexts);
    atomic_fetch_add(&used->total, overhead->context_bytes + overhead->module_bytes - before - held);
}

void hami_region_drop_hold(int device, uint64_t bytes)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (slot && bytes)
        subtract(&slot->used[device].total, bytes);
}

/* Recording */

/* What the container uses of a device, without what is only held for a context or module that is about to be made. */
static uint64_t use_without_holds(int device)
{
    struct hami_slot *slot;
    uint64_t used = 0;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++)
        if (atomic_load_explicit(&slot->pid, memory_order_relaxed))
            used += atomic_load_explicit(&slot->used[device].context, memory_order_relaxed) +
                    atomic_load_explicit(&slot->used[device].module, memory_order_relaxed) +
                    atomic_load_explicit(&slot->used[device].data, memory_order_relaxed);
    return used;
}

void hami_region_record_use(int device)
{
    struct hami_region *region = hami_region();
    _Atomic uint64_t *peak;
    uint64_t before, used;

    if (!region || device < 0)
        return;
    peak = &region->procs[0].used[device].peak;
    before = atomic_load_explicit(peak, memory_order_relaxed);
    if (hami_region_used(device) <= before)
        return;
    used = use_without_holds(device);
    while (before < used && !atomic_compare_exchange_weak(peak, &before, used))
        continue;
}

void hami_region_begin_wait(int device, bool is_first)
{
    struct hami_region *region = hami_region();
    struct hami_slot *slot = atomic_load(&own_slot);

    if (region && is_first)
        atomic_fetch_add(&region->procs[0].device_use[device].waited, 1);
    if (slot)
        atomic_fetch_add(&slot->device_use[device].waiting, 1);
}

void hami_region_end_wait(int device, uint64_t slept_ns)
{
    struct hami_region *region = hami_region();
    struct hami_slot *slot = atomic_load(&own_slot);

    if (region)
        atomic_fetch_add(&region->procs[0].device_use[device].waited_ns, slept_ns);
    if (slot)
        subtract(&slot->device_use[device].waiting, 1);
}

void hami_region_store_host_pid(int32_t pid)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        atomic_store(&slot->host_pid, pid);
}

static void let_another_finish(void)
{
    long pause_ns = 50000 + 1000 * (getpid() % 64);

    nanosleep(&(struct timespec){0, pause_ns}, NULL);
    hami_wait_once(HAMI_WAIT_REGION, -1, (uint64_t)pause_ns);
}

/*
 * Each process adds first and reads the sum afterwards, so of two that together pass the limit at least one notices. If both do,
 * both subtract again, and one of them succeeds in its second attempt.
 */
static bool reserve(struct hami_slot *slot, int device, uint64_t bytes)
{
    uint64_t limit;

    if (!slot)
        return false;
    if (slot != &slot_outside)
        count_up_to(hami_region(), slot);
    for (int attempt = 0; attempt < 3; attempt++) {
        limit = hami_region_limit(device);
        if (limit && bytes > limit)
            return false;
        atomic_fetch_add(&slot->used[device].total, bytes);
        if (!limit || hami_region_used(device) <= limit)
            return true;
        subtract(&slot->used[device].total, bytes);
        if (attempt == 0)
            hami_region_sweep();
        else if (attempt == 1)
            let_another_finish();
    }
    return false;
}

bool hami_region_charge(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (!reserve(slot, device, bytes))
        return false;
    atomic_fetch_add(&slot->used[device].data, bytes);
    return true;
}

bool hami_region_hold(int device, uint64_t bytes)
{
    return reserve(hami_region_slot(), device, bytes);
}

uint64_t hami_region_hold_rest(int device, uint64_t most)
{
    for (int attempt = 0; attempt < 3; attempt++) {
        uint64_t limit = hami_region_limit(device), used, rest;

        hami_region_sweep();
        used = hami_region_used(device);
        rest = used < limit ? limit - used : 0;
        if (rest > most)
            rest = most;
        if (!rest || hami_region_hold(device, rest))
            return rest;
    }
    return 0;
}
