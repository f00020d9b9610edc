#include "long_run.h"

#include <stdatomic.h>

/* 32 bits count to 52 days. */
#define UNIT_BITS 20
#define KNOWN_UNITS (HAMI_LONG_RUN_KNOWN_NS >> UNIT_BITS)

static uint64_t since_of(uint64_t word, uint64_t now_ns)
{
    uint64_t now = now_ns >> UNIT_BITS;
    uint32_t left = (uint32_t)word - (uint32_t)now, length = (uint32_t)now - (uint32_t)(word >> 32);

    if (!word || left > KNOWN_UNITS || length >= now)
        return 0;
    return (now - length) << UNIT_BITS;
}

void hami_long_run_note(_Atomic uint64_t *word, uint64_t since_ns, uint64_t now_ns)
{
    uint64_t before = atomic_load_explicit(word, memory_order_relaxed), since = since_of(before, now_ns);
    uint64_t after = since_ns >> UNIT_BITS << 32 | (uint32_t)((now_ns >> UNIT_BITS) + KNOWN_UNITS);

    if (!since || since >= since_ns >> UNIT_BITS << UNIT_BITS)
        atomic_compare_exchange_strong(word, &before, after);
}

uint64_t hami_long_run_since(const _Atomic uint64_t *word, uint64_t now_ns)
{
    return since_of(atomic_load_explicit(word, memory_order_relaxed), now_ns);
}
