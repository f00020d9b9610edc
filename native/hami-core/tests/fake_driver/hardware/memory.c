/*
 * Physical memory: how much of each device each process has. Every call updates the sums, so nothing is searched.
 */

#include "driver/conditions.h"
#include "hardware/state.h"

static uint64_t whole(uint64_t bytes, uint64_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static uint64_t share_used(const struct hw_share *share)
{
    return whole(share->small_bytes, HW_GRANULE_BYTES) + whole(share->code_bytes, HW_GRANULE_BYTES) + share->large_bytes +
           share->managed_bytes;
}

static struct hw_share *share_of(int position, int device)
{
    return &hw_state->processes[position].device[device];
}

enum part { SMALL, LARGE, CODE };

static enum part part_of(uint64_t bytes)
{
    return bytes < HW_SMALL_BYTES ? SMALL : LARGE;
}

static void change(struct hw_share *share, enum part part, uint64_t bytes, bool is_more)
{
    uint64_t *sum = part == SMALL ? &share->small_bytes : part == CODE ? &share->code_bytes : &share->large_bytes;
    uint64_t amount = whole(bytes, part == LARGE ? HW_GRANULE_BYTES : HW_UNIT_BYTES);

    *sum = is_more ? *sum + amount : *sum - amount;
}

static void account(int position, int device, enum part part, uint64_t bytes, bool is_more)
{
    struct hw_share *share = share_of(position, device);
    uint64_t before = share_used(share);

    change(share, part, bytes, is_more);
    hw_state->used_bytes[device] += share_used(share) - before;
}

void hw_account(int position, int device, uint64_t bytes, bool is_more)
{
    account(position, device, part_of(bytes), bytes, is_more);
}

uint64_t hw_charged(int position, int device)
{
    const struct hw_share *share = share_of(position, device);
    uint64_t own_bytes = share_used(share) - share->managed_bytes;

    return own_bytes > share->imported_bytes ? own_bytes - share->imported_bytes : 0;
}

void hw_memory_recount(void)
{
    for (int device = 0; device < HW_DEVICES_MAX; device++) {
        hw_state->used_bytes[device] = share_used(share_of(HW_NOBODY, device));
        for (int position = 0; position < hw_state->processes_end; position++)
            hw_state->used_bytes[device] += share_used(share_of(position, device));
    }
}

/* The most that living processes had. The dead do not count, because they are noticed late. */
static void note_peak(int device)
{
    if (hw_state->used_bytes[device] <= hw_state->peak_bytes[device])
        return;
    hw_reap_dead();
    if (hw_state->used_bytes[device] > hw_state->peak_bytes[device])
        hw_state->peak_bytes[device] = hw_state->used_bytes[device];
}

uint64_t hw_memory_reserved(int device)
{
    return (uint64_t)conditions_number(hw_device(device)->uuid, "memory-reserved-mib", 0) * HW_MIB;
}

static uint64_t free_bytes(int device)
{
    uint64_t total = hw_device(device)->memory_bytes, used = hw_state->used_bytes[device] + hw_memory_reserved(device);

    return used < total ? total - used : 0;
}

/* Move managed memory to the host until `bytes` are free, the first process's first. */
static void evict(int device, uint64_t bytes)
{
    for (int position = 0; position < hw_state->processes_end && free_bytes(device) < bytes; position++) {
        struct hw_share *share = share_of(position, device);
        uint64_t missing = whole(bytes - free_bytes(device), HW_GRANULE_BYTES);
        uint64_t gone = missing < share->managed_bytes ? missing : share->managed_bytes;

        share->managed_bytes -= gone;
        hw_state->used_bytes[device] -= gone;
    }
}

void hw_memory_forget(int position)
{
    for (int device = 0; device < HW_DEVICES_MAX; device++)
        hw_state->used_bytes[device] -= share_used(share_of(position, device));
}

static bool has_room(int device, uint64_t bytes)
{
    if (bytes <= free_bytes(device))
        return true;
    hw_reap_dead();
    evict(device, bytes);
    return bytes <= free_bytes(device);
}

static bool take(int device, uint64_t bytes, enum part part)
{
    struct hw_process *process;
    bool is_taken = false;

    hw_lock();
    process = hw_this_process();
    if (process) {
        struct hw_share grown = process->device[device];
        uint64_t more;

        change(&grown, part, bytes, true);
        more = share_used(&grown) - share_used(&process->device[device]);
        is_taken = hw_limit_allows(process, device, more) && has_room(device, more);
        if (is_taken) {
            account(hw_position(process), device, part, bytes, true);
            note_peak(device);
        }
    }
    hw_unlock();
    return is_taken;
}

static void give(int device, uint64_t bytes, enum part part)
{
    hw_lock();
    if (hw_known_process())
        account(hw_position(hw_known_process()), device, part, bytes, false);
    hw_unlock();
}

bool hw_memory_take(int device, uint64_t bytes)
{
    return take(device, bytes, part_of(bytes));
}

void hw_memory_give(int device, uint64_t bytes)
{
    give(device, bytes, part_of(bytes));
}

bool hw_code_take(int device, uint64_t bytes)
{
    return take(device, bytes, CODE);
}

void hw_code_give(int device, uint64_t bytes)
{
    give(device, bytes, CODE);
}

bool hw_context_take(int device)
{
    bool is_taken = hw_memory_take(device, hw_context_bytes());

    hw_lock();
    if (is_taken)
        hw_known_process()->device[device].contexts++;
    hw_unlock();
    return is_taken;
}

void hw_context_give(int device)
{
    hw_memory_give(device, hw_context_bytes());
    hw_lock();
    if (hw_known_process())
        hw_known_process()->device[device].contexts--;
    hw_unlock();
}

uint64_t hw_memory_used(int device)
{
    uint64_t used;

    hw_lock();
    hw_reap_dead();
    used = hw_state->used_bytes[device] + hw_memory_reserved(device);
    hw_unlock();
    return used;
}

uint64_t hw_memory_peak(int device)
{
    uint64_t peak;

    hw_lock();
    peak = hw_state->peak_bytes[device];
    hw_unlock();
    return peak;
}

uint64_t hw_memory_of(int device, pid_t pid)
{
    uint64_t used = 0;

    hw_lock();
    hw_reap_dead();
    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid == pid)
            used += share_used(share_of(position, device));
    hw_unlock();
    return used;
}

uint64_t hw_managed_of(int device, pid_t pid)
{
    uint64_t resident = 0;

    hw_lock();
    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid == pid)
            resident += share_of(position, device)->managed_bytes;
    hw_unlock();
    return resident;
}

int hw_processes(int device, struct hw_process_use *processes, int room)
{
    int count = 0;

    hw_lock();
    hw_reap_dead();
    for (int position = 0; position < hw_state->processes_end; position++) {
        const struct hw_process *process = &hw_state->processes[position];
        const struct hw_share *share = &process->device[device];

        if (!process->pid || !share->contexts)
            continue;
        if (count < room)
            processes[count] =
                (struct hw_process_use){process->serial, process->pid, share_used(share), share->contexts, process->is_mps_client};
        count++;
    }
    hw_unlock();
    return count;
}

/* Managed memory */

uint64_t hw_managed_take(int device, uint64_t bytes)
{
    uint64_t taken = 0;

    hw_lock();
    if (hw_this_process()) {
        taken = whole(bytes, HW_GRANULE_BYTES);
        if (taken > free_bytes(device))
            hw_reap_dead();
        if (taken > free_bytes(device))
            taken = free_bytes(device) / HW_GRANULE_BYTES * HW_GRANULE_BYTES;
        hw_known_process()->device[device].managed_bytes += taken;
        hw_state->used_bytes[device] += taken;
        note_peak(device);
    }
    hw_unlock();
    return taken;
}

void hw_managed_give(int device, uint64_t bytes)
{
    hw_lock();
    if (hw_known_process()) {
        struct hw_share *share = &hw_known_process()->device[device];
        uint64_t given = bytes < share->managed_bytes ? bytes : share->managed_bytes;

        share->managed_bytes -= given;
        hw_state->used_bytes[device] -= given;
    }
    hw_unlock();
}

uint64_t hw_managed_resident(int device)
{
    uint64_t resident = 0;

    hw_lock();
    if (hw_known_process())
        resident = hw_known_process()->device[device].managed_bytes;
    hw_unlock();
    return resident;
}
