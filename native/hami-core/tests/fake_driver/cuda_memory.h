/*
 * What the memory modules of the fake libcuda.so.1 share: addresses, ranges and what they cost.
 *
 * cuda_address.c owns the address space and the table of ranges; cuda_memory.c plain memory and how any range ends; cuda_managed.c,
 * cuda_pool.h with cuda_stream_memory.c, cuda_graph_memory.c, cuda_vmm.c, cuda_ipc.c, cuda_external.c, cuda_array.c and cuda_host.c the
 * kinds of memory; cuda_pointer.c what is told of a pointer. One lock guards them all: fake_memory_lock(). It is taken by the API
 * functions; helpers expect it held.
 *
 * An address is one in a large private mapping of the process, so that copies and memsets work on ordinary host memory that exists
 * only once touched; what counts is the physical memory taken from the hardware. Two mappings of the same memory do not share bytes.
 */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include "cuda_fake.h"

enum fake_kind { FAKE_EMPTY, FAKE_PLAIN, FAKE_MANAGED, FAKE_POOLED, FAKE_MAPPED, FAKE_IPC, FAKE_HOST };

/* Physical memory of a device; physical < 0 is the host's, which costs nothing. Shared with other processes once it has a token. */
struct fake_charge {
    int physical;
    uint64_t bytes;
    uint64_t token;
};

struct fake_range {
    uint64_t address, bytes;
    enum fake_kind kind;
    CUcontext context; /* whose end frees it; NULL where contexts do not matter */
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

/* Let other processes hold it; false when the node has too many of that. */
bool fake_charge_share(struct fake_charge *charge);

/* An address with room for `bytes`, aligned to the next power of two, or 0. */
uint64_t fake_address_take(uint64_t bytes);
void fake_address_give(uint64_t address, uint64_t bytes);

/* A range pointer holds until the next insertion or erasure. */
struct fake_range *fake_range_at(uint64_t address);
struct fake_range *fake_range_around(uint64_t address);
bool fake_range_insert(struct fake_range range);
void fake_range_erase(struct fake_range *range);

/* Walk the table: start with NULL, ends with NULL. Erasing what was returned may show a later range twice or not at all. */
struct fake_range *fake_range_next(struct fake_range *range);

/* Erase it and give back what it has. */
void fake_range_end(struct fake_range *range);

/* The same for every range that is meant. */
void fake_ranges_end(bool (*is_meant)(const struct fake_range *range, const void *whose), const void *whose);

/* What cuda_managed.c and cuda_pool.c do of that. */
void fake_managed_end(struct fake_range *range);
void fake_pool_take_back(struct fake_range *range);

/* Start a new range of that charge at a new address; on failure the charge is given back. */
CUresult fake_range_start(CUdeviceptr *pointer, struct fake_range range);

void fake_arrays_forget(CUcontext context);
void fake_pools_forget(int ordinal);

/* The pool that a graph's memory on a device comes from, and taking from it at an address the graph keeps. */
CUmemoryPool fake_graph_pool(int ordinal);
CUresult fake_pool_take_at(CUmemoryPool pool, uint64_t address, uint64_t bytes);
bool fake_pool_is_graph(CUmemoryPool pool);
bool fake_pool_is_imported(CUmemoryPool pool);

/* The device's ordinal, or -1 for the host. */
int fake_pool_ordinal(CUmemoryPool pool);

/* Add a node to a graph: take so many bytes of a device's graph pool, or free what is at an address. */
CUresult fake_graph_take(CUgraphNode *handle, CUgraph graph, int ordinal, CUdeviceptr *pointer, uint64_t bytes);
CUresult fake_graph_give(CUgraphNode *handle, CUgraph graph, CUdeviceptr pointer);

#endif
