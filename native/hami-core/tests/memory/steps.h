/*
 * What the threads of a random program do: allocate, free, launch, load, fork, change devices and pools.
 *
 * Each thread has its own random numbers and what it holds. Pools, streams and contexts are used by all threads of the process.
 * A request that is refused although it fits ends the program (requests.h).
 */
#ifndef HAMI_STEPS_H
#define HAMI_STEPS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "hami/cuda_abi.h"
#include "judge.h"

enum { WORKERS_MAX = 4, THREADS_MAX = 6, PHASES = 3, STEPS = 24, HELD_MAX = 64 };

/* What the processes of a program share. */
struct stage {
    atomic_int paused[WORKERS_MAX]; /* the phase that a worker has finished */
    atomic_int go;                  /* the phase that may begin */
    atomic_bool has_offer;
    uint64_t limit;       /* of each device */
    CUipcMemHandle offer; /* from worker 0 to the others; it keeps the memory until its end */
};

/* A process of the program. */
struct worker {
    struct stage *stage;
    unsigned int seed; /* of the program, for messages */
    int number;
    int count; /* of processes in the program */
    int threads;
    bool is_victim; /* will be killed */
    bool has_pools; /* otherwise its releases are judged more exactly */
    CUcontext primary[DEVICES];
    CUmemoryPool spare[DEVICES]; /* beside the default pools, for cuDeviceSetMemPool() */
};

enum kind { PLAIN, POOLED, ARRAY, MIPMAP, POOL, MAPPED, HANDLE, EXECUTABLE, OPENED, CONTEXT };

struct held {
    enum kind kind;
    int device;
    union {
        CUdeviceptr pointer;
        CUarray array;
        CUmipmappedArray mipmap;
        CUmemoryPool pool;
        CUmemGenericAllocationHandle handle;
        CUgraphExec executable;
        CUcontext context;
    };
    size_t bytes;
    uint64_t most_bytes; /* that its end gives back */
    CUmemoryPool from; /* POOLED: NULL for the device's current pool */
    CUgraph graph;
    CUdeviceptr in_graph;
};

/* A thread of a worker, over all phases. */
struct actor {
    struct worker *worker;
    int number; /* among all threads of the program */
    unsigned int state;
    struct held held[HELD_MAX];
    int held_count;
    int device; /* of the current primary context */
    CUmodule module;
    int module_device;
    CUstream streams[DEVICES]; /* NULL until the first use */
};

/* Return the next random number of an actor, below `below`. */
unsigned int chance(struct actor *actor, unsigned int below);

/* Retain the primary contexts of a worker, and make what its threads share. False if there is no room for it. */
bool steps_open(struct actor *actor);

/* Do the steps of one phase. */
void steps_do(struct actor *actor);

/* Settle what is not settled at once: pools by a synchronisation, and then unloaded code by a query. */
void steps_settle(struct actor *actor);

/* Free some of what an actor holds. */
void steps_close(struct actor *actor);

#endif
