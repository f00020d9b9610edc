/*
 * What each kind of launch costs: how long the device is busy with it, learned from timed launches.
 *
 * A kind is a function with its block size and the order of magnitude of its grid, or an executable graph, on one device. The table
 * has a fixed size and replaces a kind when its entry is needed. Finding takes no lock and is safe in any thread. Costs are written
 * by the holder of the meter's lock. Pure: no clock, no device.
 */
#ifndef HAMI_KERNEL_COST_H
#define HAMI_KERNEL_COST_H

#include <stdatomic.h>
#include <stdint.h>

#define HAMI_KERNELS_MAX 4096u

struct hami_kernel {
    _Atomic uint64_t key; /* 0: free */
    _Atomic uint64_t cost_ns; /* 0: unknown */
    _Atomic uint32_t samples;
};

struct hami_kernels {
    struct hami_kernel entries[HAMI_KERNELS_MAX];
};

/* Return the key of a kind; never 0. `blocks` and `threads` are the sizes of the grid and the block, or 0 if they do not matter. */
static inline uint64_t hami_kernel_key(const void *handle, int device, uint64_t blocks, uint64_t threads)
{
    uint64_t magnitude = blocks ? 64u - (unsigned)__builtin_clzll(blocks) : 0;
    uint64_t key = (uint64_t)(uintptr_t)handle ^ (threads << 16 | magnitude << 8 | (uint64_t)device) * 0xd6e8feb86659fd93u;

    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    return (key ^ key >> 29) | 1;
}

/* Return the kind with a key, added if it is new. Never NULL. */
struct hami_kernel *hami_kernel_remember(struct hami_kernels *kernels, uint64_t key);

static inline struct hami_kernel *hami_kernel_find(struct hami_kernels *kernels, uint64_t key)
{
    struct hami_kernel *first = &kernels->entries[key >> 8 & (HAMI_KERNELS_MAX - 1)];

    return atomic_load_explicit(&first->key, memory_order_relaxed) == key ? first : hami_kernel_remember(kernels, key);
}

/* What a timed launch says about its cost. */
struct hami_sample {
    uint64_t least_ns, likely_ns, most_ns;
};

void hami_kernel_learn(struct hami_kernel *kernel, const struct hami_sample *sample);

/* Learn that a launch has taken so long and still runs: the next one of its kind is expected to take no less. */
void hami_kernel_outlast(struct hami_kernel *kernel, uint64_t least_ns);

#endif
