/*
 * The fake GPUs of one node: what they are, and which memory is taken. schedule.h owns when they are busy.
 *
 * Owns the folder FAKE_DRIVER_DIR: `devices.csv` (uuid,name,memory_mib,numa_node,pci_bus_id; one device a row, in index order; a
 * row whose UUID begins with MIG- is an instance of the GPU above it with the same PCI bus ID), `state` (a mapped file shared by
 * all processes of the node and created by the first) and `xid` (errors to report, a line each, appended by a test). Without FAKE_DRIVER_DIR there is one device of 16 GiB, and its state is private to the process. Knows nothing of CUDA or
 * NVML; the folders `cuda` and `nvml` do.
 *
 * Device indices are physical: NVIDIA_VISIBLE_DEVICES and CUDA_VISIBLE_DEVICES are applied above (visible.h).
 * Locks: one for the state, which survives its holder (shared_file.h). Functions take it themselves.
 * Fork: a child is a new process to the hardware and has none of its parent's memory. Processes have serial numbers above 0, which
 * are never reused, because processes of two containers may have the same pid. A pid is what getpid() returns in the process.
 */
#ifndef FAKE_HARDWARE_H
#define FAKE_HARDWARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The rows of `devices.csv`, followed by those of MIG instances that processes create (mig.h). */
enum { HW_CONFIGURED_MAX = 16, HW_INSTANCES_MAX = 64, HW_DEVICES_MAX = HW_CONFIGURED_MAX + HW_INSTANCES_MAX };

enum { HW_PROCESSES_MAX = 1024 };

/* Of each device, as of an A100. */
enum { HW_MULTIPROCESSORS = 108 };

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
    int parent;   /* physical index of the GPU of this MIG instance, or -1 */
    int instance; /* the GPU instance's number; in `devices.csv` from 1 */
    int compute;  /* the compute instance's number */
};

struct hw_process_use {
    uint64_t serial;
    pid_t pid;
    uint64_t used_bytes;
    unsigned int contexts;
    bool is_mps_client;
};

/* What a device reports: an XID error, or an ECC error of one or two bits. */
struct hw_report {
    int device;
    enum { HW_XID, HW_SINGLE_BIT_ECC, HW_DOUBLE_BIT_ECC } kind;
    unsigned int xid;
};

/* Open the node's hardware once per process. Returns false, with a reason on stderr, if FAKE_DRIVER_DIR is unusable. */
bool hw_open(void);

/* Whether the process is root of the node: the machine's root, or the user who owns FAKE_DRIVER_DIR and so made the node. */
bool hw_is_root(void);

/* Return the number of rows, of which some may be empty. */
int hw_device_count(void);
const struct hw_device *hw_device(int device);

/* Whether a row is a device. The parent of a row that never was one is -1. */
bool hw_exists(int device);

/* Whether a GPU is in MIG mode. */
bool hw_is_partitioned(int device);

/* Return this process's serial number; 0 while it has taken nothing. */
uint64_t hw_self(void);

/* Note that this process runs under MPS, before it takes anything. */
void hw_become_mps_client(void);

/* Return CLOCK_MONOTONIC in nanoseconds, the time base of the node. */
uint64_t hw_now_ns(void);

/*
 * Take physical memory for this process. Less than 1 MiB is rounded up to 512 bytes and packed with other small pieces of the
 * process into granules of 2 MiB. More is rounded up to granules.
 * Returns false if the device is full, after dead processes were removed and managed memory was moved to the host.
 */
bool hw_memory_take(int device, uint64_t bytes);
void hw_memory_give(int device, uint64_t bytes);

/* The same for code, which is packed only with other code. */
bool hw_code_take(int device, uint64_t bytes);
void hw_code_give(int device, uint64_t bytes);

/* Add or remove a context of this process. It takes FAKE_DRIVER_CONTEXT_MIB (default 128). */
bool hw_context_take(int device);
void hw_context_give(int device);

/* Return what the driver keeps of a device for itself: nobody can take it. */
uint64_t hw_memory_reserved(int device);

/* Return what processes have of a device, and the reserve. */
uint64_t hw_memory_used(int device);

/* Return the most memory that living processes ever had at one time. */
uint64_t hw_memory_peak(int device);

/* Return the same for the processes with a pid, with or without a context; and how much of it is managed memory. */
uint64_t hw_memory_of(int device, pid_t pid);
uint64_t hw_managed_of(int device, pid_t pid);

/*
 * Move managed memory to the device, as much as is free, in granules. Returns how much that was. Another process may evict it
 * later, so hw_managed_resident() of this process can be less than it moved.
 */
uint64_t hw_managed_take(int device, uint64_t bytes);
void hw_managed_give(int device, uint64_t bytes);
uint64_t hw_managed_resident(int device);

/*
 * Memory that outlives the process that took it. hw_block_share() turns memory of this process into a block and returns its token,
 * which is never reused; 0 if there are too many blocks. A process holds a block once, however often it asks. The memory is free
 * when the last holder has dropped it or died and the last file of hw_block_export() is closed. One holder is charged, the first is
 * its maker.
 */
uint64_t hw_block_share(int device, uint64_t bytes);
bool hw_block_hold(uint64_t token, int *device, uint64_t *bytes);
void hw_block_drop(uint64_t token);
int hw_block_export(uint64_t token);

/* Return the token of an exported file, or 0. */
uint64_t hw_block_of_file(int file);

/* List at most `room` processes that have a context on the device. Returns how many there are. */
int hw_processes(int device, struct hw_process_use *processes, int room);

/* Read the next line at or after *offset in the `xid` file, and advance *offset. Returns false if there is none. */
bool hw_next_report(long *offset, struct hw_report *report);
long hw_report_end(void);

/* Read `devices.csv` again. Nothing else may use the devices meanwhile. Returns false, with a reason on stderr, if that fails. */
bool hw_read_again(void);

#endif
