/*
 * Pools of device memory, charged for what they have reserved: memory that was freed into a pool is the pool's, not the card's.
 *
 * A pool is one of CUDA's (its handle is the key), or what the driver keeps for graphs that allocate: one a device, whose key is
 * HAMI_POOL_OF_GRAPHS(ordinal). The charge is the driver's own number, RESERVED_MEM_CURRENT, asked for again after every allocation,
 * free, trim and synchronisation. It ends with the last of the pool's handle and the allocations made from it.
 * Locks: one mutex for all pools of the process, held while the driver allocates.
 */
#ifndef HAMI_POOL_H
#define HAMI_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "charges.h"
#include "hami/cuda_abi.h"

/* No address is that small. */
#define HAMI_POOL_OF_GRAPHS(ordinal) ((uint64_t)(ordinal) + 1)
#define HAMI_POOL_OF(handle) ((uint64_t)(uintptr_t)(handle))

/* Begin to account for a pool on a region device. Idempotent. */
void hami_pool_know(uint64_t pool, int device);

/* The region device of a pool, or -1. */
int hami_pool_device(uint64_t pool);

/* The driver's call that takes memory from a pool. */
typedef CUresult hami_pool_take(const void *arguments);

enum hami_growth {
    HAMI_GROWTH_REFUSED, /* the limit would be passed: the driver was not asked */
    HAMI_GROWTH_WITHIN,
    HAMI_GROWTH_BEYOND, /* the pool grew by more than was charged for, and the rest passes the limit: give back what was taken */
};

/*
 * Take `bytes` from a pool: charge for what it must grow by, call `take`, settle the charge. `*result` is the driver's answer, or
 * CUDA_ERROR_OUT_OF_MEMORY when it was not asked.
 */
enum hami_growth hami_pool_grow(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result);

/* One allocation from the pool more, or less. */
void hami_pool_retain(uint64_t pool);
void hami_pool_drop(uint64_t pool);

/* Destroy a pool as `destroy`, the driver's function, does; what is still allocated from it keeps its charge. */
CUresult hami_pool_destroy(CUmemoryPool pool, __typeof__(&cuMemPoolDestroy) destroy);

/* Forget what was allocated from a region device's pools, because its primary context is gone; `discharge` ends each charge. */
void hami_pools_end_device(int device, void (*discharge)(const struct hami_charge *charge));

/* Ask the driver again what every pool has reserved. Costs a load while the process uses no pools. */
void hami_pools_refresh(void);

/* Make the pools of a region device give up what they keep unused; true if that was anything. */
bool hami_pools_trim(int device);

/* Forget the parent's pools, in a forked child. */
void hami_pools_forget(void);

#endif
