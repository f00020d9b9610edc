/*
 * The layout of the file `state`, which the processes of a node share. For this folder only.
 *
 * state.c maps it and removes dead processes; memory.c owns shares and sums, blocks.c blocks, limits.c limits. Everything
 * here is read and written under the lock. These are plain numbers: if a process dies while it holds the lock, hw_memory_recount()
 * repairs them.
 */
#ifndef FAKE_HARDWARE_STATE_H
#define FAKE_HARDWARE_STATE_H

#include "hardware/cgroup.h"
#include "hardware/hardware.h"
#include "hardware/mig.h"
#include "hardware/shared_file.h"

enum { HW_BLOCKS_MAX = 4096, HW_LIMITS_MAX = 4096, HW_GROUPS_MAX = 1024, HW_NOBODY = HW_PROCESSES_MAX };

/* What a process has of one device. */
struct hw_share {
    uint64_t small_bytes;   /* whole units, packed into granules */
    uint64_t code_bytes;    /* the same for code, which has its own granules because code is addressed from a base */
    uint64_t large_bytes;   /* whole granules, including its contexts */
    uint64_t managed_bytes; /* whole granules of managed memory on the device; others may evict them */
    unsigned int contexts;
    uint64_t imported_bytes; /* of the above, what another process made and is charged for */
    uint64_t exempt_bytes;   /* what it had before a limit was set (misc.c) */
};

/* A cgroup and those above it, its own first; 0 after the last. */
struct hw_groups {
    uint64_t numbers[CGROUP_DEPTH_MAX];
    uint16_t pointers[CGROUP_DEPTH_MAX]; /* by which misc.c knows them; 0 without that controller */
};

struct hw_process {
    uint64_t serial;
    pid_t pid;
    bool is_mps_client;
    struct hw_groups groups;
    struct hw_share device[HW_DEVICES_MAX];
};

/* Memory that several processes may hold. One of them is charged for it; none if only an open file keeps it. */
struct hw_block {
    uint64_t token; /* 0: free */
    uint64_t bytes;
    int device;
    int payer;      /* position in `processes` */
    uint64_t maker; /* its serial number */
    struct hw_groups groups; /* the maker's, to which it stays charged */
    uint64_t holders[HW_PROCESSES_MAX / 64];
};

/* What was set for a cgroup on a device (accounting.h). */
struct hw_limit {
    uint16_t pointer; /* 0: free */
    int device;
    int64_t load; /* of the driver that holds it */
    uint64_t soft_bytes, hard_bytes;
};

/* A cgroup for which something was set, or whose processes are charged. Its place is how the driver knows it. */
struct hw_group {
    uint64_t number; /* 0: free */
    char path[512];  /* empty if only processes that see a part of all cgroups have named it */
};

/* MIG of a GPU (mig.h). */
struct hw_gpu {
    int compute_mode; /* compute_mode.h */
    bool is_mig, is_mig_pending;
    int64_t resets, loads; /* the last that were noticed */
    struct mig_gpu_instance instances[MIG_GPU_INSTANCES_MAX];
};

/* A compute instance, which is a device while the device has a UUID. */
struct hw_instance {
    struct mig_compute_instance compute;
    struct hw_device device;
};

struct hw_state {
    uint32_t magic;
    struct shared_lock lock;
    uint64_t serials;
    uint64_t generations;
    int processes_end, blocks_end, limits_end; /* above these, everything is free */
    uint64_t used_bytes[HW_DEVICES_MAX], peak_bytes[HW_DEVICES_MAX];
    uint64_t losses[HW_DEVICES_MAX]; /* the newest loss of each device that has happened (faults.h) */
    bool has_instances; /* ever had */
    struct hw_gpu gpus[HW_CONFIGURED_MAX];
    struct hw_instance instances[HW_INSTANCES_MAX];
    struct hw_process processes[HW_PROCESSES_MAX + 1]; /* the last one is HW_NOBODY */
    struct hw_block blocks[HW_BLOCKS_MAX];
    int memacct; /* what holds limits since the driver's load `memacct_load` (limits.h) */
    int64_t memacct_load;
    struct hw_limit limits[HW_LIMITS_MAX];
    struct hw_group groups[HW_GROUPS_MAX];
};

extern struct hw_state *hw_state;

/* Map the state of the node, or without a folder of this process. Returns false, with a reason on stderr, if that fails. */
bool hw_state_open(const char *folder);

void hw_lock(void);
void hw_unlock(void);

/* Return this process's entry, claimed if necessary; NULL if the node is full. The caller holds the lock. */
struct hw_process *hw_this_process(void);

/* Return the position of an entry in `processes`. */
int hw_position(const struct hw_process *process);

/* Return this process's entry, or NULL if it has none. */
struct hw_process *hw_known_process(void);

/* Clear the entries of dead processes. The caller holds the lock. */
void hw_reap_dead(void);

/* Remove an entry's part in blocks, and then its sums; the entry is cleared afterwards. */
void hw_blocks_forget(int position);
void hw_memory_forget(int position);

/* Free the blocks that no process and no open file holds. */
void hw_blocks_collect(void);

/* Change what an entry has, as in hw_memory_take(). */
void hw_account(int position, int device, uint64_t bytes, bool is_more);

/* Return what an entry has of a device without managed memory and imports: what a limit counts. */
uint64_t hw_charged(int position, int device);

/* Whether another process than its maker pays for a block of a device, which stays charged to the maker's cgroup. */
bool hw_is_passed_on(const struct hw_block *block, int device);

/* Write the cgroups of this process. The caller holds the lock. */
void hw_find_groups(struct hw_groups *groups);

/* Whether no limit forbids a process that much more of a device. */
bool hw_limit_allows(const struct hw_process *process, int device, uint64_t more_bytes);

/* Compute every sum from the entries. */
void hw_memory_recount(void);

/* Return what a context takes on this node. */
uint64_t hw_context_bytes(void);

/* Open the state file again, and hold a shared lock on a byte of it until it is closed. Returns the descriptor, or -1. */
int hw_open_holding(int position);
bool hw_is_held(int position);

/* Whether a file is the state file. */
bool hw_is_state(int file);

#endif
