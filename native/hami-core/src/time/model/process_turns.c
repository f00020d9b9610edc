#include "process_turns.h"

#include <stdatomic.h>

/* The furthest that a process announces its next launch. A word beyond that was not written by a launch. */
#define BACK_MAX_NS 200000000u

static bool is_after(uint64_t one, uint64_t other)
{
    return (int64_t)(one - other) > 0;
}

static void raise_to(_Atomic uint64_t *word, uint64_t least)
{
    uint64_t value = atomic_load_explicit(word, memory_order_relaxed);

    while (is_after(least, value) &&
           !atomic_compare_exchange_weak_explicit(word, &value, least, memory_order_relaxed, memory_order_relaxed))
        continue;
}

void hami_process_turns_use(struct hami_process_turns *turns, int index, int64_t ns)
{
    atomic_fetch_add_explicit(&turns->processes[index].used_ns, (uint64_t)ns, memory_order_relaxed);
}

/* Whether a process waits or has just launched, and has not died since. */
static bool is_here(const struct hami_process_turn *process, uint64_t now_ns)
{
    uint64_t back = atomic_load_explicit(&process->back_ns, memory_order_relaxed);

    return back > now_ns && back - now_ns < BACK_MAX_NS;
}

static uint64_t used_by(const struct hami_process_turn *process)
{
    return atomic_load_explicit(&process->used_ns, memory_order_relaxed);
}

/* Return the process that used least, of this one and those that wait. */
static const struct hami_process_turn *first_of(const struct hami_process_turns *turns, const struct hami_process_turn *self,
                                                int count, uint64_t now_ns)
{
    const struct hami_process_turn *first = self;

    for (const struct hami_process_turn *other = turns->processes; other < turns->processes + count; other++)
        if (is_after(used_by(first), used_by(other)) && atomic_load_explicit(&other->is_waiting, memory_order_relaxed) &&
            is_here(other, now_ns))
            first = other;
    return first;
}

bool hami_process_turns_must_yield(struct hami_process_turns *turns, int index, int count, bool is_strict, uint64_t now_ns)
{
    struct hami_process_turn *self = &turns->processes[index];
    uint64_t holder_index = atomic_load_explicit(&turns->holder_index, memory_order_relaxed);
    const struct hami_process_turn *first, *holder = holder_index < (uint64_t)count ? &turns->processes[holder_index] : self;

    if (!is_here(self, now_ns))
        raise_to(&self->used_ns, atomic_load_explicit(&turns->reached_ns, memory_order_relaxed) - HAMI_LEAD_NS);
    first = first_of(turns, self, count, now_ns);
    if (!is_strict)
        return is_after(used_by(self), used_by(first) + HAMI_LEAD_NS);
    if (is_here(holder, now_ns) && !is_after(used_by(holder), used_by(first) + HAMI_LEAD_NS))
        first = holder;
    if (first != self)
        return true;
    atomic_store_explicit(&turns->holder_index, (uint64_t)index, memory_order_relaxed);
    return false;
}

static void write_turn(struct hami_process_turn *process, bool is_waiting, uint64_t back_ns)
{
    atomic_store_explicit(&process->is_waiting, is_waiting, memory_order_relaxed);
    atomic_store_explicit(&process->back_ns, back_ns, memory_order_relaxed);
}

void hami_process_turns_wait(struct hami_process_turns *turns, int index, uint64_t back_ns)
{
    write_turn(&turns->processes[index], true, back_ns);
}

void hami_process_turns_pass(struct hami_process_turns *turns, int index, uint64_t back_ns)
{
    write_turn(&turns->processes[index], false, back_ns);
    raise_to(&turns->reached_ns, used_by(&turns->processes[index]));
}
