/*
 * Pools of device memory, charged for what they have reserved. Memory that was freed into a pool still belongs to the pool.
 *
 * A pool is one of CUDA's, whose key is its handle, or the driver's memory for the graphs of a device, whose key is
 * HAMI_POOL_OF_GRAPHS(ordinal). The charge is the driver's number, RESERVED_MEM_CURRENT. It is read again after every allocation,
 * free, trim and synchronisation. It ends when the pool's handle and all allocations from it are gone.
 * Locks: one mutex for all pools of the process, never held while the driver is called or the region's lock is waited for. Threads
 * take memory from a pool at the same time: the pool may then be charged for more than it reserves, until the last of them has
 * ended. What is refused meanwhile waits for them, at most 10 s, and is tried again.
 */
#ifndef HAMI_POOL_H
#define HAMI_POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "charges.h"
#include "hami/cuda_abi.h"

/* Smaller than any address. */
#define HAMI_POOL_OF_GRAPHS(ordinal) ((uint64_t)(ordinal) + 1)
#define HAMI_POOL_OF(handle) ((uint64_t)(uintptr_t)(handle))

/* Account for a pool on a region device from now on. Idempotent. */
void hami_pool_know(uint64_t pool, int device);

/* Return the region device of a pool, or -1. */
int hami_pool_device(uint64_t pool);

/* Takes memory from a pool with the driver's call. */
typedef CUresult hami_pool_take(const void *arguments);

enum hami_growth {
    HAMI_GROWTH_REFUSED, /* passes the limit; the driver was not asked */
    HAMI_GROWTH_ENDED,   /* the pool is being destroyed; the driver was not asked */
    HAMI_GROWTH_WITHIN,
    HAMI_GROWTH_BEYOND, /* more than was charged, and that passes the limit: free what was taken */
};

/*
 * Take `bytes` from a pool: charge what it must grow by, call `take`, settle the charge. `*result` is the driver's answer, or
 * CUDA_ERROR_OUT_OF_MEMORY if it was not asked.
 */
enum hami_growth hami_pool_grow(uint64_t pool, size_t bytes, hami_pool_take *take, const void *arguments, CUresult *result);

/* Count an allocation from the pool, or its end. */
void hami_pool_retain(uint64_t pool);
void hami_pool_drop(uint64_t pool);

/*
 * Destroy a pool with `destroy`, the driver's function. What is still allocated from it remains charged. Waits while another thread
 * asks the driver about this pool, at most 10 s.
 */
CUresult hami_pool_destroy(CUmemoryPool pool, __typeof__(&cuMemPoolDestroy) destroy);

/* Discharge the allocations from a region device's pools after its primary context ended; `discharge` ends each charge. */
void hami_pools_end_device(int device, void (*discharge)(const struct hami_charge *charge));

/*
 * Read again what the pools have reserved: all from which no thread takes memory now, or all of a region device. Costs one load
 * while the process uses no pools.
 */
static inline void hami_pools_refresh(void);
static inline void hami_pools_refresh_device(int device);

/* Make the pools of a region device give up what they do not use. Returns true if that was anything. */
bool hami_pools_trim(int device);

/* Whether the container is within its limit of a device, although more was taken than was charged; if necessary after a trim. */
bool hami_pools_are_within(int device);

/* Forget the parent's pools, in a forked child. */
void hami_pools_forget(void);

/* What the two functions above do in a process that uses pools. Device -1 is any. */
extern _Atomic bool hami_pools_are_used;
void hami_pools_refresh_used(int device);

static inline void hami_pools_refresh_device(int device)
{
    if (__builtin_expect(atomic_load_explicit(&hami_pools_are_used, memory_order_relaxed), 0))
        hami_pools_refresh_used(device);
}

static inline void hami_pools_refresh(void)
{
    hami_pools_refresh_device(-1);
}

#endif
