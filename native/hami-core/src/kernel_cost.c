#include "kernel_cost.h"

#include <stdatomic.h>

/* Places looked at before another kind must go. */
enum { REACH = 8 };

/* After this many samples the mean follows as slowly as an average of so many: noise is small, and a change is caught in a few. */
enum { MEMORY_SAMPLES = 8 };

static uint64_t mixed(uint64_t value)
{
    value ^= value >> 32;
    value *= 0x9e3779b97f4a7c15u;
    return value ^ value >> 29;
}

static unsigned magnitude(uint64_t count)
{
    return count ? 64u - (unsigned)__builtin_clzll(count) : 0;
}

uint64_t hami_kernel_key(const void *handle, int device, uint64_t blocks, uint64_t threads)
{
    uint64_t shape = threads << 16 | (uint64_t)magnitude(blocks) << 8 | (uint64_t)device;

    return mixed((uint64_t)(uintptr_t)handle ^ shape * 0xd6e8feb86659fd93u) | 1;
}

struct hami_kernel *hami_kernel_find(struct hami_kernels *kernels, uint64_t key)
{
    struct hami_kernel *place;
    uint64_t found;

    for (unsigned step = 0; step < REACH; step++) {
        place = &kernels->places[((key >> 8) + step) % HAMI_KERNELS_MAX];
        found = atomic_load_explicit(&place->key, memory_order_relaxed);
        if (found == key || (!found && atomic_compare_exchange_strong(&place->key, &found, key)) || found == key)
            return place;
    }
    place = &kernels->places[(key >> 8) % HAMI_KERNELS_MAX];
    atomic_store_explicit(&place->cost_ns, 0, memory_order_relaxed);
    atomic_store_explicit(&place->probed_at_ns, 0, memory_order_relaxed);
    place->samples = 0;
    atomic_store_explicit(&place->key, key, memory_order_relaxed);
    return place;
}

void hami_kernel_learn(struct hami_kernel *kernel, uint64_t measured_ns)
{
    int64_t mean = (int64_t)atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);

    if (kernel->samples < MEMORY_SAMPLES)
        kernel->samples++;
    mean += ((int64_t)measured_ns - mean) / (int64_t)kernel->samples;
    atomic_store_explicit(&kernel->cost_ns, mean > 0 ? (uint64_t)mean : 1, memory_order_relaxed);
    atomic_store_explicit(&kernel->probed_at_ns, 0, memory_order_relaxed);
}
