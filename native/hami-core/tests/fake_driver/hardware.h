/*
 * The fake GPUs of one node: what they are and what memory is taken. When they are busy is schedule.h's.
 *
 * Owns the folder FAKE_DRIVER_DIR: `devices.csv` (uuid,name,memory_mib,numa_node,pci_bus_id; one device a row, in index order; a
 * row whose UUID begins with MIG- is an instance of the GPU above it that has its PCI bus ID), `state` (a mapped file that all
 * processes of the node share, created by the first) and `xid` (faults to report, `<uuid> <number>` a line, appended by a test).
 * Without FAKE_DRIVER_DIR there is one device of 16 GiB and its state is private to the process.
 * Knows nothing of CUDA or NVML: `cuda_*.c` and `nvml.c` speak those.
 *
 * Device indices are physical: NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES are filters above (visible.h).
 * Locks: the state has one, which outlives its holder (shared_file.h). Functions take it themselves.
 * Fork: a child is a new process to the hardware; it owns none of its parent's memory.
 * Processes: known by a serial number above 0, never re-used, because pids of two containers may be equal. A pid is what the process
 * itself takes for its own.
 */
#ifndef FAKE_HARDWARE_H
#define FAKE_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { HW_DEVICES_MAX = 16, HW_PROCESSES_MAX = 1024 };

#define HW_MIB ((uint64_t)1 << 20)
#define HW_GRANULE_BYTES (2 * HW_MIB)
#define HW_UNIT_BYTES ((uint64_t)512)
#define HW_SMALL_BYTES HW_MIB

struct hw_device {
    char uuid[64];
    char name[96];
    uint64_t memory_bytes;
    int numa_node;
    unsigned int pci_domain, pci_bus, pci_device;
    char pci_bus_id[32];
    int parent;   /* physical index of the GPU that this is a MIG instance of, or -1 */
    int instance; /* the GPU instance's number, from 1 */
};

struct hw_process_use {
    uint64_t serial;
    pid_t pid;
    uint64_t used_bytes;
    unsigned int contexts;
};

/* Open the node's hardware once per process. Returns false with a reason on stderr when FAKE_DRIVER_DIR is unusable. */
bool hw_open(void);

int hw_device_count(void);
const struct hw_device *hw_device(int device);

/* Whether a GPU is in MIG mode. */
bool hw_is_partitioned(int device);

/* This process's serial number, or 0 while it has taken nothing. */
uint64_t hw_self(void);

/* CLOCK_MONOTONIC in nanoseconds, the time base of every timeline on the node. */
uint64_t hw_now_ns(void);

/*
 * Take physical memory for this process. Less than 1 MiB is rounded up to 512 bytes and packed with the process's other small pieces
 * into granules of 2 MiB; more is rounded up to granules.
 * Returns false when the device is full, after dead processes were reaped and managed memory was sent to the host.
 */
bool hw_memory_take(int device, uint64_t bytes);
void hw_memory_give(int device, uint64_t bytes);

/* The same for code, which is packed with other code only. */
bool hw_code_take(int device, uint64_t bytes);
void hw_code_give(int device, uint64_t bytes);

/* Add or remove one context of this process; its memory cost is FAKE_DRIVER_CONTEXT_MIB (default 128). */
bool hw_context_take(int device);
void hw_context_give(int device);

uint64_t hw_memory_used(int device);

/* The most that was ever in use at once by processes that lived. */
uint64_t hw_memory_peak(int device);

/* The same of the processes with that pid, which need no context for it; and how much of it is managed memory. */
uint64_t hw_memory_of(int device, pid_t pid);
uint64_t hw_managed_of(int device, pid_t pid);

/*
 * Bring managed memory to the device, as much as is free, in granules; returns how much that was. Whoever lacks memory later may
 * evict it: what hw_managed_resident() says this process has can be less than it took.
 */
uint64_t hw_managed_take(int device, uint64_t bytes);
void hw_managed_give(int device, uint64_t bytes);
uint64_t hw_managed_resident(int device);

/*
 * Memory that outlives its maker: hw_block_share() makes a block, by a token never used again, of memory this process has taken;
 * 0 when there are too many. A process holds a block once, however often it asks; the memory is free when the last holder has
 * dropped it or died and the last file from hw_block_export() is closed. One holder is charged for it, the maker first.
 */
uint64_t hw_block_share(int device, uint64_t bytes);
bool hw_block_hold(uint64_t token, int *device, uint64_t *bytes);
void hw_block_drop(uint64_t token);
int hw_block_export(uint64_t token);

/* The token of an exported file, or 0. */
uint64_t hw_block_of_file(int file);

/* Fill at most `room` entries with the processes that have a context on the device; returns how many there are. */
int hw_processes(int device, struct hw_process_use *processes, int room);

/* Read the next injected fault at or after *offset in the `xid` file; advances *offset. Returns false when there is none. */
bool hw_next_fault(long *offset, int *device, unsigned int *xid);
long hw_fault_end(void);

#endif
