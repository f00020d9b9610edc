/*
 * Pools: pool.c is what they do, pool_calls.c the functions that programs call.
 *
 * A pool reserves physical memory in blocks of FAKE_DRIVER_POOL_GROWTH_MIB and packs its allocations without gaps. It grows when
 * its use, in units of 512 bytes, passes what is reserved. A free counts at once, in any stream. What a pool keeps beyond its
 * release threshold is given back at the next synchronisation, by a trim, or with the pool. A destroyed pool remains until its last
 * allocation is freed. The functions need the memory lock held.
 * Source: CUDA C++ Programming Guide, "Stream Ordered Memory Allocator".
 */
#ifndef CUDA_POOL_H
#define CUDA_POOL_H

#include "cuda/memory/memory.h"

struct CUmemPoolHandle_st {
    int ordinal; /* below 0: host memory */
    bool is_graph, is_imported, is_destroyed;
    int handle_types;
    size_t limit_bytes; /* 0: none */
    uint64_t threshold_bytes, policy[3];
    uint64_t reserved_bytes, reserved_high_bytes, used_bytes, used_high_bytes;
    struct CUmemPoolHandle_st *next;
};

/* Return a device's default pool, without the lock, and the one that cuMemAllocAsync uses. */
CUmemoryPool fake_pool_default(int ordinal);
CUmemoryPool fake_pool_current(int ordinal);
void fake_pool_set_current(int ordinal, CUmemoryPool pool);

/*
 * Make a pool with these properties; NULL without memory. A closed pool ends with its last allocation. Default pools are not
 * closed.
 */
CUmemoryPool fake_pool_open(struct CUmemPoolHandle_st properties);
bool fake_pool_close(CUmemoryPool pool);

/* Give back what is reserved beyond the use and `keep_bytes`, in whole blocks. */
void fake_pool_shrink(CUmemoryPool pool, uint64_t keep_bytes);

#endif
