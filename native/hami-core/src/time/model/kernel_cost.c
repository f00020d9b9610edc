#include "kernel_cost.h"

/* Entries that are probed before another kind is replaced. */
enum { PROBES = 8 };

/* After this many samples the mean moves as slowly as a mean of so many: noise is small, and a change shows after a few. */
enum { MEMORY_SAMPLES = 8 };

/* A launch that was interrupted, or the first of a longer kind, counts as at most this many times the mean. */
enum { ODD_FACTOR = 4 };

struct hami_kernel *hami_kernel_remember(struct hami_kernels *kernels, uint64_t key)
{
    struct hami_kernel *entry;
    uint64_t found;

    for (unsigned step = 0; step < PROBES; step++) {
        entry = &kernels->entries[((key >> 8) + step) % HAMI_KERNELS_MAX];
        found = atomic_load_explicit(&entry->key, memory_order_relaxed);
        if (found == key || (!found && atomic_compare_exchange_strong(&entry->key, &found, key)) || found == key)
            return entry;
    }
    entry = &kernels->entries[(key >> 8) % HAMI_KERNELS_MAX];
    atomic_store_explicit(&entry->cost_ns, 0, memory_order_relaxed);
    entry->samples = 0;
    atomic_store_explicit(&entry->key, key, memory_order_relaxed);
    return entry;
}

/* Return the most likely cost of a launch: the known mean if the sample allows it. A single outlier hardly counts. */
static uint64_t judged(const struct hami_kernel *kernel, uint64_t mean, const struct hami_sample *sample)
{
    uint64_t value = !mean                     ? sample->likely_ns
                     : mean > sample->most_ns  ? sample->most_ns
                     : mean < sample->least_ns ? sample->least_ns
                                               : mean;

    return kernel->samples == MEMORY_SAMPLES && value > ODD_FACTOR * mean ? ODD_FACTOR * mean : value;
}

void hami_kernel_learn(struct hami_kernel *kernel, const struct hami_sample *sample)
{
    int64_t mean = (int64_t)atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed);
    int64_t value = (int64_t)judged(kernel, (uint64_t)mean, sample);

    if (kernel->samples < MEMORY_SAMPLES)
        kernel->samples++;
    mean += (value - mean) / (int64_t)kernel->samples;
    atomic_store_explicit(&kernel->cost_ns, mean > 0 ? (uint64_t)mean : 1, memory_order_relaxed);
}

void hami_kernel_outlast(struct hami_kernel *kernel, uint64_t least_ns)
{
    kernel->samples = MEMORY_SAMPLES;
    if (atomic_load_explicit(&kernel->cost_ns, memory_order_relaxed) < least_ns)
        atomic_store_explicit(&kernel->cost_ns, least_ns, memory_order_relaxed);
}
