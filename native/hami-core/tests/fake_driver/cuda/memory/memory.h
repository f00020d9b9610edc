/*
 * What the memory modules of the fake libcuda.so.1 share: addresses, ranges and what they take.
 *
 * address.c owns the address space and the table of ranges; memory.c plain memory and the end of any range; managed.c, pool.h with
 * stream_memory.c, vmm.c, ipc.c, external.c, array.c, host.c and execution/graph_memory.c the other kinds of memory; pointer.c the
 * attributes of pointers. One lock guards them all: fake_memory_lock(). The API functions take it; helpers need it held.
 *
 * An address is in a large private mapping of the process, so copies and memsets work on ordinary host memory, which exists only
 * once touched. What counts is the physical memory taken from the hardware. Two mappings of the same memory do not share bytes.
 */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include "cuda/fake.h"

enum fake_kind { FAKE_EMPTY, FAKE_PLAIN, FAKE_MANAGED, FAKE_POOLED, FAKE_MAPPED, FAKE_IPC, FAKE_HOST };

/* Physical memory of a device. physical < 0 is host memory, which takes nothing. With a token it is shared with other processes. */
struct fake_charge {
    int physical;
    uint64_t bytes;
    uint64_t token;
};

struct fake_range {
    uint64_t address, bytes;
    enum fake_kind kind;
    CUcontext context; /* whose end frees it, or NULL */
    struct fake_charge charge;
    void *owner; /* FAKE_POOLED: the pool; FAKE_MAPPED: the VMM block */
    unsigned int flags;
    int references;          /* FAKE_IPC: how often it was opened */
    uint64_t resident_bytes; /* FAKE_MANAGED */
    CUmemLocation preferred, last_prefetch;
};

void fake_memory_lock(void);
void fake_memory_unlock(void);

bool fake_charge_take(struct fake_charge *charge, int physical, uint64_t bytes);
void fake_charge_give(const struct fake_charge *charge);

/* Let other processes hold it. False if the node has too many shared blocks. */
bool fake_charge_share(struct fake_charge *charge);

/* Return an address with room for `bytes`, aligned to the next power of two, or 0. */
uint64_t fake_address_take(uint64_t bytes);
void fake_address_give(uint64_t address, uint64_t bytes);

/* A pointer to a range is valid until the next insertion or erasure. */
struct fake_range *fake_range_at(uint64_t address);
struct fake_range *fake_range_around(uint64_t address);
bool fake_range_insert(struct fake_range range);
void fake_range_erase(struct fake_range *range);

/* Walk the table from NULL to NULL. If the returned range is erased, a later range may be returned twice or not at all. */
struct fake_range *fake_range_next(struct fake_range *range);

/* Erase a range and free what it has. */
void fake_range_end(struct fake_range *range);

/* Do so for every range that matches. */
void fake_ranges_end(bool (*is_meant)(const struct fake_range *range, const void *whose), const void *whose);

/* The parts of that in managed.c and pool.c. */
void fake_managed_end(struct fake_range *range);
void fake_pool_take_back(struct fake_range *range);

/* Start a new range for a charge at a new address. On failure the charge is freed. */
CUresult fake_range_start(CUdeviceptr *pointer, struct fake_range range);

void fake_arrays_forget(CUcontext context);
void fake_pools_forget(int ordinal);

/* Return the pool for graphs' memory of a device, and allocate from it at an address that the graph keeps. */
CUmemoryPool fake_graph_pool(int ordinal);
CUresult fake_pool_take_at(CUmemoryPool pool, uint64_t address, uint64_t bytes);
bool fake_pool_is_graph(CUmemoryPool pool);
bool fake_pool_is_imported(CUmemoryPool pool);

/* Return the device's ordinal, or -1 for the host. */
int fake_pool_ordinal(CUmemoryPool pool);

/* Add a node to a graph that allocates bytes of a device's graph pool, or frees an address. */
CUresult fake_graph_take(CUgraphNode *handle, CUgraph graph, int ordinal, CUdeviceptr *pointer, uint64_t bytes);
CUresult fake_graph_give(CUgraphNode *handle, CUgraph graph, CUdeviceptr pointer);

#endif
