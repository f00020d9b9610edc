/*
 * The layout of the region: the file that all processes of a container share with the node's monitor.
 *
 * Declares the layout that HAMi calls version 1.2 and nothing else. Every offset is asserted here. `tests/layout` prints them and
 * compares them with the vectors of the Python reader. Numbers are little endian and naturally aligned. Sizes are bytes, SM limits
 * are percent, and a limit of 0 means none.
 * Source: HAMi-core b6afdd0, src/multiprocess/multiprocess_memory_limit.h.
 */
#ifndef HAMI_REGION_H
#define HAMI_REGION_H

#include <stddef.h>
#include <stdint.h>

#define HAMI_REGION_MAGIC 19920718
#define HAMI_REGION_MAJOR 1u
#define HAMI_REGION_MINOR 2u
#define HAMI_DEVICES_MAX 16
#define HAMI_SLOTS_MAX 1024
#define HAMI_UUID_BYTES 96

enum hami_slot_status { HAMI_SLOT_FREE = 0, HAMI_SLOT_RUNNING = 1, HAMI_SLOT_SUSPENDED = 2 };

/* What the library itself waits for, beside the driver. A launch may wait for several reasons. */
enum hami_wait_reason {
    HAMI_WAIT_SHARE,    /* a launch: the container's share of the device's time, or its process's turn */
    HAMI_WAIT_QUEUE,    /* a launch: enough is queued on the device */
    HAMI_WAIT_COST,     /* a launch: the first one of its kind is being measured */
    HAMI_WAIT_PRIORITY, /* a launch: the monitor blocks the container */
    HAMI_WAIT_REGION,   /* another process has the region's lock, or asks the driver for the devices */
    HAMI_WAIT_CONTEXT,  /* another thread or process makes a context on the device */
    HAMI_WAIT_POOL,     /* other threads use the same memory pool */
    HAMI_WAIT_DRIVER,   /* another thread is in a call of the driver about the same device */
    HAMI_WAIT_REASONS
};

/* What no hook reaches. */
enum hami_unhooked_load {
    HAMI_OTHER_NAMESPACE, /* a library that is opened in another namespace of the dynamic linker */
    HAMI_SECOND_DRIVER    /* a second copy of the driver */
};

/*
 * HAMi calls the fourth word `offset` and never writes it. Here `expected` is what a context of the process takes, or one that is
 * being made is expected to take, plus 1; 0 for none. HAMi leaves the last three words unused. Here the first of them is the number of contexts that `context` is
 * for. In the first slot `peak` is the most that the container's processes have used together. `waits` of the first slot's devices
 * 2r and 2r + 1 is about reason r: the nanoseconds of all waits; and how many there were (upper half) and the microseconds of the
 * longest (lower).
 */
struct hami_device_memory {
    _Atomic uint64_t context, module, data, expected, total;
    _Atomic uint64_t contexts;
    _Atomic uint64_t peak;
    _Atomic uint64_t waits;
};

/*
 * HAMi leaves the last three words unused. Here `waiting` is how many launches of the process wait for their share of the device's
 * time. In the first slot the other two are how many launches of the container have waited, and for how long together.
 */
struct hami_device_use {
    uint64_t decoder, encoder, sm;
    _Atomic uint64_t waiting;
    _Atomic uint64_t waited, waited_ns;
};

/*
 * One process. HAMi leaves the last two words unused. Here `start_ticks` is the process's start time (field 22 of
 * /proc/<pid>/stat), and `tag` is HAMI_SLOT_TAG if it is valid, so that a process with a recycled pid is not mistaken for the
 * owner.
 */
struct hami_slot {
    _Atomic int32_t pid, host_pid;
    struct hami_device_memory used[HAMI_DEVICES_MAX];
    _Atomic uint64_t monitor_used[HAMI_DEVICES_MAX];
    struct hami_device_use device_use[HAMI_DEVICES_MAX];
    _Atomic int32_t status;
    _Atomic uint64_t seqlock;
    _Atomic uint64_t start_ticks;
    _Atomic uint64_t tag;
};

#define HAMI_SLOT_TAG 0x494d41485f746f6cu

/*
 * glibc's process-shared semaphore. This library initialises both for older programs and waits on neither. glibc leaves the rest
 * unused. Here `is_replacing` of the first one is 1 while a process replaces the list of devices. `records` is HAMI_REGION_RECORDS in
 * the first semaphore of a region in which `peak`, `waits`, `waiting`, `waited`, `waited_ns` and that semaphore's `unhooked_loads` are
 * kept; in any other they mean nothing. `unhooked_loads` is how often programs opened something in another namespace (upper half) and
 * used a second driver (lower half).
 */
struct hami_semaphore {
    uint64_t value;
    int32_t shared;
    _Atomic int32_t is_replacing;
    _Atomic uint64_t unhooked_loads;
    uint64_t records;
};

#define HAMI_REGION_RECORDS 0x3153444345524d48u

struct hami_region {
    _Atomic int32_t initialized_flag; /* HAMI_REGION_MAGIC, stored last */
    uint32_t major_version, minor_version;
    _Atomic int32_t sm_init_flag;
    _Atomic uint64_t owner_pid;
    struct hami_semaphore sem;
    uint64_t device_count;
    char uuids[HAMI_DEVICES_MAX][HAMI_UUID_BYTES]; /* in NVML order */
    _Atomic uint64_t limit[HAMI_DEVICES_MAX];
    _Atomic uint64_t sm_limit[HAMI_DEVICES_MAX];
    struct hami_slot procs[HAMI_SLOTS_MAX];
    _Atomic int32_t proc_num; /* slots at and above it are free */
    _Atomic int32_t utilization_switch;
    _Atomic int32_t recent_kernel;
    int32_t priority;
    _Atomic uint64_t last_kernel_time; /* seconds since 1970 */
    struct hami_semaphore sem_postinit;
};

#define HAMI_REGION_FILE_BYTES (sizeof(struct hami_region) + 1)

#define HAMI_OFFSET_IS(type, field, offset) \
    _Static_assert(offsetof(struct type, field) == (offset), #type "." #field " is at " #offset)

_Static_assert(sizeof(struct hami_region) == 2008952, "the region is 2008952 bytes");
_Static_assert(sizeof(struct hami_slot) == 1960, "a slot is 1960 bytes");
_Static_assert(sizeof(struct hami_device_memory) == 64, "a device's memory is 64 bytes");
_Static_assert(sizeof(struct hami_device_use) == 48, "a device's use is 48 bytes");
_Static_assert(sizeof(struct hami_semaphore) == 32, "a semaphore is 32 bytes");
HAMI_OFFSET_IS(hami_region, initialized_flag, 0);
HAMI_OFFSET_IS(hami_region, major_version, 4);
HAMI_OFFSET_IS(hami_region, minor_version, 8);
HAMI_OFFSET_IS(hami_region, sm_init_flag, 12);
HAMI_OFFSET_IS(hami_region, owner_pid, 16);
HAMI_OFFSET_IS(hami_region, sem, 24);
HAMI_OFFSET_IS(hami_region, device_count, 56);
HAMI_OFFSET_IS(hami_region, uuids, 64);
HAMI_OFFSET_IS(hami_region, limit, 1600);
HAMI_OFFSET_IS(hami_region, sm_limit, 1728);
HAMI_OFFSET_IS(hami_region, procs, 1856);
HAMI_OFFSET_IS(hami_region, proc_num, 2008896);
HAMI_OFFSET_IS(hami_region, utilization_switch, 2008900);
HAMI_OFFSET_IS(hami_region, recent_kernel, 2008904);
HAMI_OFFSET_IS(hami_region, priority, 2008908);
HAMI_OFFSET_IS(hami_region, last_kernel_time, 2008912);
HAMI_OFFSET_IS(hami_region, sem_postinit, 2008920);
HAMI_OFFSET_IS(hami_slot, pid, 0);
HAMI_OFFSET_IS(hami_slot, host_pid, 4);
HAMI_OFFSET_IS(hami_slot, used, 8);
HAMI_OFFSET_IS(hami_slot, monitor_used, 1032);
HAMI_OFFSET_IS(hami_slot, device_use, 1160);
HAMI_OFFSET_IS(hami_slot, status, 1928);
HAMI_OFFSET_IS(hami_slot, seqlock, 1936);
HAMI_OFFSET_IS(hami_slot, start_ticks, 1944);
HAMI_OFFSET_IS(hami_slot, tag, 1952);
HAMI_OFFSET_IS(hami_device_memory, context, 0);
HAMI_OFFSET_IS(hami_device_memory, module, 8);
HAMI_OFFSET_IS(hami_device_memory, data, 16);
HAMI_OFFSET_IS(hami_device_memory, expected, 24);
HAMI_OFFSET_IS(hami_device_memory, total, 32);
HAMI_OFFSET_IS(hami_device_memory, peak, 48);
HAMI_OFFSET_IS(hami_device_memory, waits, 56);
_Static_assert(2 * HAMI_WAIT_REASONS <= HAMI_DEVICES_MAX, "each reason has two words");
HAMI_OFFSET_IS(hami_device_use, decoder, 0);
HAMI_OFFSET_IS(hami_device_use, encoder, 8);
HAMI_OFFSET_IS(hami_device_use, sm, 16);
HAMI_OFFSET_IS(hami_device_use, waiting, 24);
HAMI_OFFSET_IS(hami_device_use, waited, 32);
HAMI_OFFSET_IS(hami_device_use, waited_ns, 40);
HAMI_OFFSET_IS(hami_semaphore, unhooked_loads, 16);
HAMI_OFFSET_IS(hami_semaphore, records, 24);

#endif
