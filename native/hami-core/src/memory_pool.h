/*
 * Pools of device memory, charged for what they have reserved: memory that was freed into a pool is the pool's, not the card's.
 *
 * A pool is one of CUDA's (its handle is the key), or what the driver keeps for graphs that allocate: one a device, whose key is
 * HAMI_POOL_OF_GRAPHS(ordinal). The charge is the driver's own number, RESERVED_MEM_CURRENT, asked for again after every allocation,
 * free, trim and synchronisation. It ends with the last of the pool's handle and the allocations made from it.
 * Locks: one mutex for all pools of the process, held from hami_pool_begin() to hami_pool_end() while the driver allocates.
 */
#ifndef HAMI_MEMORY_POOL_H
#define HAMI_MEMORY_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hami/cuda_abi.h"

/* No address is that small. */
#define HAMI_POOL_OF_GRAPHS(ordinal) ((uint64_t)(ordinal) + 1)
#define HAMI_POOL_OF(handle) ((uint64_t)(uintptr_t)(handle))

/* Begin to account for a pool on a region device. Idempotent. */
void hami_pool_know(uint64_t pool, int device);

/* The region device of a pool, or -1. */
int hami_pool_device(uint64_t pool);

/*
 * Charge for what a pool must grow by to have `bytes` more in use. On CUDA_SUCCESS, and only then, hami_pool_end() must follow, with
 * `*growth`, when the driver has answered. CUDA_ERROR_OUT_OF_MEMORY when the limit would be passed even if pools gave up what they
 * keep unused.
 */
CUresult hami_pool_begin(uint64_t pool, size_t bytes, uint64_t *growth);

/* Settle the pool's charge. False when it grew by more than was charged for and the rest passes the limit: give back what was taken. */
bool hami_pool_end(uint64_t pool, uint64_t growth);

/* One allocation from the pool more, or less. */
void hami_pool_retain(uint64_t pool);
void hami_pool_drop(uint64_t pool);

/* Destroy a pool as `destroy`, the driver's function, does; what is still allocated from it keeps its charge. */
CUresult hami_pool_destroy(CUmemoryPool pool, __typeof__(&cuMemPoolDestroy) destroy);

/* Forget what was allocated from a region device's pools, for its primary context is gone. */
void hami_pools_end_device(int device);

/* Ask the driver again what every pool has reserved. Costs a load while the process uses no pools. */
void hami_pools_refresh(void);

/* Make the pools of a region device give up what they keep unused; true if that was anything. */
bool hami_pools_trim(int device);

/* Forget the parent's pools, in a forked child. */
void hami_pools_forget(void);

#endif
