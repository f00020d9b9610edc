/*
 * Pools: cuda_pool.c is what they do, cuda_pool_calls.c how programs reach them.
 *
 * A pool reserves physical memory in blocks of FAKE_DRIVER_POOL_GROWTH_MIB and packs its allocations without gaps: it grows when what
 * is used, in units of 512 bytes, passes what is reserved. A free counts at once, in whatever stream; what a pool keeps beyond its
 * release threshold goes back at the next synchronisation, by a trim, or with the pool. A destroyed pool lives on until its last
 * allocation is freed. Source of the rules: CUDA C++ Programming Guide, "Stream Ordered Memory Allocator".
 * The functions expect the memory lock held.
 */
#ifndef CUDA_POOL_H
#define CUDA_POOL_H

#include "cuda_memory.h"

struct CUmemPoolHandle_st {
    int ordinal; /* < 0: the host's */
    bool is_graph, is_imported, is_destroyed;
    int handle_types;
    size_t limit_bytes; /* 0: none */
    uint64_t threshold_bytes, policy[3];
    uint64_t reserved_bytes, reserved_high_bytes, used_bytes, used_high_bytes;
    struct CUmemPoolHandle_st *next;
};

/* A device's default pool, and the one that cuMemAllocAsync takes from. */
CUmemoryPool fake_pool_default(int ordinal);
CUmemoryPool fake_pool_current(int ordinal);
void fake_pool_set_current(int ordinal, CUmemoryPool pool);

/* A pool like this; NULL without memory. Closing it makes it end with its last allocation; not for a default pool. */
CUmemoryPool fake_pool_open(struct CUmemPoolHandle_st properties);
bool fake_pool_close(CUmemoryPool pool);

/* Give back what is reserved beyond what is used and `keep_bytes`, in whole blocks. */
void fake_pool_shrink(CUmemoryPool pool, uint64_t keep_bytes);

#endif
