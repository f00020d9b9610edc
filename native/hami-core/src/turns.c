#include "turns.h"

#include <stdatomic.h>

/* Nobody says that it waits for longer, so what does was not written by a launch. */
#define WAIT_MAX_NS 200000000u

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

void hami_turns_use(struct hami_turns *turns, int place, uint64_t ns)
{
    atomic_fetch_add_explicit(&turns->places[place].used_ns, ns, memory_order_relaxed);
}

static bool is_waiting(const struct hami_place *place, uint64_t now_ns)
{
    uint64_t until = atomic_load_explicit(&place->waits_until_ns, memory_order_relaxed);

    return until > now_ns && until - now_ns < WAIT_MAX_NS;
}

bool hami_turns_must_yield(struct hami_turns *turns, int place, int count, uint64_t now_ns)
{
    struct hami_place *own = &turns->places[place];
    uint64_t used;

    raise_to(&own->used_ns, atomic_load_explicit(&turns->reached_ns, memory_order_relaxed) - HAMI_LEAD_NS);
    used = atomic_load_explicit(&own->used_ns, memory_order_relaxed);
    for (int other = 0; other < count; other++)
        if (other != place && is_waiting(&turns->places[other], now_ns) &&
            is_after(used, atomic_load_explicit(&turns->places[other].used_ns, memory_order_relaxed) + HAMI_LEAD_NS))
            return true;
    return false;
}

void hami_turns_wait(struct hami_turns *turns, int place, uint64_t until_ns)
{
    struct hami_place *own = &turns->places[place];

    atomic_store_explicit(&own->waits_until_ns, until_ns, memory_order_relaxed);
    if (!until_ns)
        raise_to(&turns->reached_ns, atomic_load_explicit(&own->used_ns, memory_order_relaxed));
}
