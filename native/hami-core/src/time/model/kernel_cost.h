/*
 * What each kind of launch costs: how long the device is busy with it, learned from launches that were timed.
 *
 * A kind is a function with its block size and the order of magnitude of its grid, or an executable graph, on one device. The table has
 * a fixed size and forgets a kind when its place is needed. Finding takes no lock and is safe in any thread; the costs are written by
 * whoever holds the meter's lock. Pure: no clock, no device.
 */
#ifndef HAMI_KERNEL_COST_H
#define HAMI_KERNEL_COST_H

#include <stdatomic.h>
#include <stdint.h>

#define HAMI_KERNELS_MAX 4096u

struct hami_kernel {
    _Atomic uint64_t key; /* 0: the place is free */
    _Atomic uint64_t cost_ns; /* 0: not known yet */
    _Atomic uint64_t probed_at_ns; /* when the launch began that will tell; 0: none */
    _Atomic uint32_t samples;
};

struct hami_kernels {
    struct hami_kernel places[HAMI_KERNELS_MAX];
};

/* The key of a kind; never 0. `blocks` and `threads` are the grid's and the block's sizes, 0 where they do not matter. */
static inline uint64_t hami_kernel_key(const void *handle, int device, uint64_t blocks, uint64_t threads)
{
    uint64_t magnitude = blocks ? 64u - (unsigned)__builtin_clzll(blocks) : 0;
    uint64_t key = (uint64_t)(uintptr_t)handle ^ (threads << 16 | magnitude << 8 | (uint64_t)device) * 0xd6e8feb86659fd93u;

    key = (key ^ key >> 32) * 0x9e3779b97f4a7c15u;
    return (key ^ key >> 29) | 1;
}

/* The kind with that key, remembered from now on if it was not. Never NULL. */
struct hami_kernel *hami_kernel_remember(struct hami_kernels *kernels, uint64_t key);

static inline struct hami_kernel *hami_kernel_find(struct hami_kernels *kernels, uint64_t key)
{
    struct hami_kernel *first = &kernels->places[key >> 8 & (HAMI_KERNELS_MAX - 1)];

    return atomic_load_explicit(&first->key, memory_order_relaxed) == key ? first : hami_kernel_remember(kernels, key);
}

/* What a timed launch says of its cost. */
struct hami_sample {
    uint64_t least_ns, likely_ns, most_ns;
};

void hami_kernel_learn(struct hami_kernel *kernel, const struct hami_sample *sample);

#endif
