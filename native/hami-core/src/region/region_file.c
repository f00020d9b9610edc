#include "region_file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file_lock.h"
#include "file_space.h"
#include "liveness.h"
#include "lock_rank.h"
#include "log.h"
#include "options.h"
#include "region_limits.h"
#include "region_map.h"
#include "slot_lock.h"
#include "unhooked_loads.h"
#include "waits.h"

enum {
    RECENT_KERNEL_FRESH = 2,
    LOOK_EVERY_MS = 64,
    LONGEST_WAIT_MS = 10000,
    LONGEST_WAIT_FOR_INVENTORY_MS = 2000,
    LONGEST_WAIT_TO_SWEEP_MS = 5000,
    LONGEST_WAIT_FOR_CONTEXT_MS = 10000
};

/*
 * What HAMi-core locks for itself while it looks for a process's first context. Here each device has a byte after it, and contexts
 * of several devices share HAMi's. Source: HAMi-core, pull request 248.
 */
#define HAMI_CORE_BYTE 0x40000000
#define LOCK_OF_CONTEXTS(device) HAMI_FILE_LOCK(HAMI_RANK_CONTEXTS, HAMI_CORE_BYTE + 1 + (device), 1, HAMI_CORE_BYTE)

static struct hami_file_lock region_lock = HAMI_FILE_LOCK(HAMI_RANK_REGION, 0, sizeof(struct hami_region), 0);
static struct hami_file_lock contexts_locks[HAMI_DEVICES_MAX] = {
    LOCK_OF_CONTEXTS(0),  LOCK_OF_CONTEXTS(1),  LOCK_OF_CONTEXTS(2),  LOCK_OF_CONTEXTS(3),
    LOCK_OF_CONTEXTS(4),  LOCK_OF_CONTEXTS(5),  LOCK_OF_CONTEXTS(6),  LOCK_OF_CONTEXTS(7),
    LOCK_OF_CONTEXTS(8),  LOCK_OF_CONTEXTS(9),  LOCK_OF_CONTEXTS(10), LOCK_OF_CONTEXTS(11),
    LOCK_OF_CONTEXTS(12), LOCK_OF_CONTEXTS(13), LOCK_OF_CONTEXTS(14), LOCK_OF_CONTEXTS(15),
};

_Static_assert(HAMI_DEVICES_MAX == 16, "each device has a lock of its contexts");

/* Of processes that start together, one asks the driver for the devices, and the others use its answer. */
static struct hami_file_lock inventory_lock = HAMI_FILE_LOCK(HAMI_RANK_INVENTORY, HAMI_CORE_BYTE + 1 + HAMI_DEVICES_MAX, 1, 0);

/*
 * Where older versions keep their slots, to see whether a process still uses the file. Source: the layouts in HAMi-core's history.
 */
static const struct {
    off_t file_bytes;
    off_t slots, slot_count;
    size_t slot_bytes;
} older_layouts[] = {
    {804681, 1848, 804664, 784},    /* 8b7cd78, 2024-01 */
    {1197897, 1848, 1197880, 1168}, /* up to HAMi 2.4.0 */
    {2008985, 1888, 2008928, 1960}, /* HAMi 2.8.1 */
    {2008953, 1856, 2008896, 1960}, /* HAMi 2.4.1 to 2.8.0: the same layout, version 1.1 */
};

static pthread_mutex_t attach_mutex = PTHREAD_MUTEX_INITIALIZER; /* for which of several threads' mappings is used */

/* The locks */

static const char *path_of_locks(void)
{
    return hami_region_is_private() ? NULL : hami_options()->region_path;
}

/* Take a lock, and count how long that took. False, with errno, if it cannot be taken. */
static bool take(struct hami_file_lock *lock, int longest_wait_ms, enum hami_wait_reason reason, int device)
{
    uint64_t slept_ns = 0;
    bool is_taken = hami_file_lock_take(lock, path_of_locks(), longest_wait_ms, &slept_ns);
    int problem = errno;

    hami_wait_once(reason, device, slept_ns);
    errno = problem;
    return is_taken;
}

static bool lock_region(int longest_wait_ms, const char *consequence)
{
    if (take(&region_lock, longest_wait_ms, HAMI_WAIT_REGION, -1))
        return true;
    if (errno == EAGAIN)
        hami_log(HAMI_LOG_WARNING, "%s: another process has had its lock for %d s: %s", hami_options()->region_path,
                 longest_wait_ms / 1000, consequence);
    return false;
}

bool hami_region_lock(void)
{
    return lock_region(LONGEST_WAIT_MS, "new devices cannot be added");
}

bool hami_region_lock_to_sweep(void)
{
    return lock_region(LONGEST_WAIT_TO_SWEEP_MS, "the memory of dead processes stays counted");
}

bool hami_region_try_lock(void)
{
    return take(&region_lock, 0, HAMI_WAIT_REGION, -1);
}

void hami_region_unlock(void)
{
    hami_file_lock_give(&region_lock);
}

bool hami_region_lock_contexts(int device)
{
    if (take(&contexts_locks[device], LONGEST_WAIT_FOR_CONTEXT_MS, HAMI_WAIT_CONTEXT, device))
        return true;
    if (errno == EAGAIN)
        hami_log(HAMI_LOG_WARNING, "device %d: another process has been making its first context for %d s", device,
                 LONGEST_WAIT_FOR_CONTEXT_MS / 1000);
    return false;
}

void hami_region_unlock_contexts(int device)
{
    hami_file_lock_give(&contexts_locks[device]);
}

/* Devices */

/* Known devices keep their indices, because other processes count in them. */
static void write_inventory(struct hami_region *region, const struct hami_inventory *inventory)
{
    int place = 0;

    for (int index = 0; index < inventory->count; index++) {
        if (!inventory->uuids[index][0] || hami_region_device_in(region, inventory->uuids[index]) >= 0)
            continue;
        while (place < HAMI_DEVICES_MAX && region->uuids[place][0])
            place++;
        if (place < HAMI_DEVICES_MAX)
            memcpy(region->uuids[place], inventory->uuids[index], HAMI_UUID_BYTES);
    }
    for (place = HAMI_DEVICES_MAX; place > 0 && !region->uuids[place - 1][0]; place--)
        continue;
    region->device_count = (uint64_t)place;
}

static void wipe(struct hami_region *region)
{
    atomic_store(&region->initialized_flag, 0);
    memset((char *)region + sizeof(region->initialized_flag), 0, sizeof(*region) - sizeof(region->initialized_flag));
}

/* Initialise a zeroed region, the magic last: if its writer dies before that, the next process starts over. */
static void initialise(struct hami_region *region, const struct hami_inventory *inventory)
{
    const struct hami_semaphore unlocked = {.value = 1, .shared = 128};

    region->major_version = HAMI_REGION_MAJOR;
    region->minor_version = HAMI_REGION_MINOR;
    region->sem = unlocked;
    region->sem.records = HAMI_REGION_RECORDS;
    region->sem_postinit = unlocked;
    write_inventory(region, inventory);
    hami_limits_write(region, false);
    atomic_store(&region->utilization_switch, 1);
    atomic_store(&region->recent_kernel, RECENT_KERNEL_FRESH);
    atomic_store(&region->last_kernel_time, (uint64_t)time(NULL));
    atomic_store(&region->initialized_flag, HAMI_REGION_MAGIC);
}

/* Who uses a file */

static bool is_alive(int32_t pid, uint64_t tag, uint64_t start_ticks)
{
    uint64_t now = pid > 0 ? hami_start_ticks(pid) : 0;

    return now && (now == HAMI_START_UNKNOWN || tag != HAMI_SLOT_TAG || now == start_ticks);
}

/* Read in the opposite order of the owner's writes: if the tag is there, the start time is there. */
bool hami_slot_is_alive(struct hami_region *region, int index)
{
    struct hami_slot *slot = &region->procs[index];
    int32_t pid = atomic_load(&slot->pid);
    uint64_t tag = atomic_load(&slot->tag);

    return is_alive(pid, tag, atomic_load(&slot->start_ticks)) || (pid > 0 && hami_slot_is_locked(index));
}

int hami_region_count(struct hami_region *region)
{
    int32_t count = atomic_load_explicit(&region->proc_num, memory_order_relaxed);

    if (count < 0)
        return 0;
    return count > HAMI_SLOTS_MAX ? HAMI_SLOTS_MAX : count;
}

/* A process of another pid namespace may have the same pid. */
static bool anyone_else_alive(struct hami_region *region)
{
    int32_t self = (int32_t)getpid();

    for (int index = 0; index < hami_region_count(region); index++) {
        struct hami_slot *slot = &region->procs[index];

        if (atomic_load(&slot->status) != HAMI_SLOT_FREE && hami_slot_is_alive(region, index) &&
            (atomic_load(&slot->pid) != self || hami_slot_is_locked(index)))
            return true;
    }
    return false;
}

static bool older_file_is_used(int file, off_t file_bytes)
{
    for (size_t layout = 0; layout < sizeof(older_layouts) / sizeof(older_layouts[0]); layout++) {
        int32_t pid, count = 0;

        if (older_layouts[layout].file_bytes != file_bytes)
            continue;
        if (pread(file, &count, sizeof(count), older_layouts[layout].slot_count) != sizeof(count))
            return false;
        for (int slot = 0; slot < count && slot < HAMI_SLOTS_MAX; slot++) {
            off_t at = older_layouts[layout].slots + (off_t)slot * (off_t)older_layouts[layout].slot_bytes;

            if (pread(file, &pid, sizeof(pid), at) == sizeof(pid) && is_alive(pid, 0, 0))
                return true;
        }
    }
    return false;
}

enum file_state { FILE_READY, FILE_EMPTY, FILE_STALE, FILE_FOREIGN };

static enum file_state state_of(int file)
{
    uint32_t header[3] = {0};
    struct stat status;
    bool is_same_layout;

    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        return FILE_FOREIGN;
    if (status.st_size == 0)
        return FILE_EMPTY;
    if (pread(file, header, sizeof(header), 0) != sizeof(header) || header[0] != HAMI_REGION_MAGIC)
        return FILE_STALE;
    is_same_layout = status.st_size == (off_t)HAMI_REGION_FILE_BYTES && header[1] == HAMI_REGION_MAJOR;
    if (is_same_layout && header[2] == HAMI_REGION_MINOR)
        return FILE_READY;
    if (!older_file_is_used(file, status.st_size))
        return FILE_STALE;
    return is_same_layout ? FILE_READY : FILE_FOREIGN;
}

/* Attaching */

/* Map the file. NULL, with errno, if that fails or the disk has no space for all of it. */
static struct hami_region *map_shared(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC), problem;
    void *address = MAP_FAILED;

    if (file < 0)
        return NULL;
    if (hami_file_allocate(file, (off_t)HAMI_REGION_FILE_BYTES))
        address = mmap(NULL, sizeof(struct hami_region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    problem = errno;
    close(file);
    errno = problem;
    return address == MAP_FAILED ? NULL : address;
}

static bool is_same_version(struct hami_region *region)
{
    return atomic_load(&region->initialized_flag) == HAMI_REGION_MAGIC && region->major_version == HAMI_REGION_MAJOR &&
           region->minor_version == HAMI_REGION_MINOR;
}

static struct hami_region *map_private(void)
{
    void *address = mmap(NULL, sizeof(struct hami_region), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return address == MAP_FAILED ? NULL : address;
}

/*
 * Give a file that is not ready its mode and length. All users in the container may share it, whatever this process's umask is. Only
 * its owner can change its mode.
 */
static bool make_room(int file)
{
    struct stat status;

    if (fstat(file, &status) != 0)
        return false;
    if (status.st_uid == geteuid() && (status.st_mode & 0777) != 0666 && fchmod(file, 0666) != 0)
        hami_log(HAMI_LOG_WARNING, "%s: cannot be opened to other users: %s", hami_options()->region_path, strerror(errno));
    if (status.st_size > (off_t)HAMI_REGION_FILE_BYTES && ftruncate(file, (off_t)HAMI_REGION_FILE_BYTES) != 0)
        return false;
    return hami_file_allocate(file, (off_t)HAMI_REGION_FILE_BYTES);
}

/*
 * The environment differs from the file. It wins if no other process uses the file, as after a restart of the container. What the
 * limits file grants always wins.
 */
static void agree_on_limits(struct hami_region *region)
{
    hami_limits_write_granted(region);
    if (!hami_limits_write(region, true))
        return;
    if (anyone_else_alive(region))
        hami_log(HAMI_LOG_WARNING, "%s: its limits differ from the environment; they stay, because other processes use them",
                 hami_options()->region_path);
    else
        hami_limits_write(region, false);
}

/* Map the file without a lock if it already says what this process would write. */
static struct hami_region *attach_ready(void)
{
    struct hami_region *region;
    int file = open(hami_options()->region_path, O_RDWR | O_CLOEXEC);
    bool is_ready = file >= 0 && state_of(file) == FILE_READY;

    if (file >= 0)
        close(file);
    region = is_ready ? map_shared(hami_options()->region_path) : NULL;
    if (!region || (is_same_version(region) && region->device_count && !hami_limits_write(region, true)))
        return region;
    munmap(region, sizeof(*region));
    return NULL;
}

static struct hami_region *map_locked(const struct hami_inventory *inventory)
{
    const char *path = hami_options()->region_path;
    enum file_state state = state_of(region_lock.file);
    struct hami_region *region = NULL;

    if (state == FILE_FOREIGN)
        hami_log(HAMI_LOG_ERROR, "%s: has another layout and is in use; limits hold for each process by itself", path);
    else if ((state != FILE_READY && !make_room(region_lock.file)) || (region = map_shared(path)) == NULL)
        hami_log(HAMI_LOG_ERROR, "%s: cannot be used: %s; limits hold for each process by itself", path, strerror(errno));
    if (region && state == FILE_STALE)
        wipe(region);
    if (region && state != FILE_READY)
        initialise(region, inventory);
    else if (region && !region->device_count)
        write_inventory(region, inventory);
    if (region && state == FILE_READY)
        agree_on_limits(region);
    return region;
}

/* Take a lock of the file, unless the file becomes ready before. False then, with `*ready`, or with errno as for the lock. */
static bool lock_unless_ready(struct hami_file_lock *lock, int longest_wait_ms, struct hami_region **ready)
{
    int wait_ms = 1, left_ms = longest_wait_ms, problem = 0;
    uint64_t slept_ns = 0;
    bool is_taken;

    while (!(is_taken = hami_file_lock_take(lock, path_of_locks(), wait_ms, &slept_ns))) {
        problem = errno;
        *ready = problem == EAGAIN ? attach_ready() : NULL;
        left_ms -= wait_ms;
        wait_ms = wait_ms < LOOK_EVERY_MS ? wait_ms * 2 : LOOK_EVERY_MS;
        if (*ready || problem != EAGAIN || left_ms <= 0)
            break;
    }
    hami_wait_once(HAMI_WAIT_REGION, -1, slept_ns);
    errno = problem;
    return is_taken;
}

/* Whether the file lacks the devices of the container. The caller holds the lock. */
static bool needs_inventory(int file)
{
    enum file_state state = state_of(file);
    uint64_t count = 0;

    if (state == FILE_READY)
        return pread(file, &count, sizeof(count), offsetof(struct hami_region, device_count)) != sizeof(count) || !count;
    return state != FILE_FOREIGN;
}

/* Map the file under its lock. NULL if that fails, with `*is_missing` if it lacks devices and there is no inventory. */
static struct hami_region *attach_locked(const struct hami_inventory *inventory, bool *is_missing)
{
    struct hami_region *region = NULL;

    if (!lock_unless_ready(&region_lock, LONGEST_WAIT_MS, &region)) {
        if (!region && errno == ENOLCK) {
            hami_log(HAMI_LOG_ERROR,
                     "%s: neither it nor a file beside it can be locked between processes: nothing can be allocated",
                     hami_options()->region_path);
            hami_limits_refuse_all();
        } else if (!region && errno == EAGAIN) {
            hami_log(HAMI_LOG_ERROR, "%s: another process has had its lock for %d s: nothing can be allocated",
                     hami_options()->region_path, LONGEST_WAIT_MS / 1000);
            hami_limits_refuse_all();
        } else if (!region) {
            hami_log(HAMI_LOG_ERROR, "%s: cannot be opened and locked: %s; limits hold for each process by itself",
                     hami_options()->region_path, strerror(errno));
        }
        return region;
    }
    *is_missing = !inventory && needs_inventory(region_lock.file);
    region = *is_missing ? NULL : map_locked(inventory);
    hami_region_unlock();
    return region;
}

/* Map the file. The driver is asked for the devices without the lock of the region, because its answer may take long. */
static struct hami_region *attach_file(hami_take_inventory *take_inventory)
{
    struct hami_inventory inventory = {.count = 0};
    struct hami_region *region;
    bool is_missing = false, has_turn;

    region = attach_locked(NULL, &is_missing);
    if (!is_missing)
        return region;
    has_turn = lock_unless_ready(&inventory_lock, LONGEST_WAIT_FOR_INVENTORY_MS, &region);
    if (has_turn)
        region = attach_ready();
    if (!region) {
        take_inventory(&inventory);
        region = attach_locked(&inventory, &is_missing);
    }
    if (has_turn)
        hami_file_lock_give(&inventory_lock);
    return region;
}

static struct hami_region *attach_private(hami_take_inventory *take_inventory)
{
    struct hami_inventory inventory = {.count = 0};
    struct hami_region *region = map_private();

    if (!region)
        return NULL;
    take_inventory(&inventory);
    initialise(region, &inventory);
    return region;
}

/* Use a mapping from now on, unless another thread was faster. */
static void publish(struct hami_region *region, bool is_file)
{
    hami_lock(&attach_mutex, HAMI_RANK_ATTACH);
    if (hami_region()) {
        munmap(region, sizeof(*region));
    } else {
        hami_limits_read_own(region);
        hami_waits_publish(region);
        hami_unhooked_loads_publish(region);
        hami_region_use(region, !is_file);
    }
    hami_unlock(&attach_mutex, HAMI_RANK_ATTACH);
}

/* Several threads may do so at the same time, because the driver may not answer the first. */
void hami_region_attach(hami_take_inventory *take_inventory)
{
    struct hami_region *region = NULL;
    bool is_file;

    if (hami_region())
        return;
    if (hami_options()->region_path[0])
        region = attach_ready();
    if (!region && hami_options()->region_path[0])
        region = attach_file(take_inventory);
    is_file = region != NULL;
    if (!region)
        region = attach_private(take_inventory);
    if (region)
        publish(region, is_file);
}

/*
 * A process that claims its slot looks afterwards whether the devices are being replaced. So either it is seen here, or it sees that
 * and waits for the lock: both write the count of slots in between, and the second to do so sees what the first did before.
 */
static bool begin_to_replace_unless_used(struct hami_region *region)
{
    if (anyone_else_alive(region))
        return false;
    atomic_store(&region->sem.is_replacing, 1);
    atomic_fetch_add(&region->proc_num, 0);
    if (!anyone_else_alive(region))
        return true;
    atomic_store(&region->sem.is_replacing, 0);
    return false;
}

/* With the lock, nobody replaces the devices: who began to was killed, and this process adds what is missing. */
bool hami_region_wait_for_devices(void)
{
    struct hami_region *region = hami_region();

    if (!atomic_load(&region->sem.is_replacing))
        return true;
    if (!hami_region_lock())
        return false;
    atomic_store(&region->sem.is_replacing, 0);
    hami_region_unlock();
    return true;
}

/* What others use stays as it is: their devices' places and limits. */
static void add_devices(struct hami_region *region, const struct hami_inventory *inventory)
{
    bool is_new[HAMI_DEVICES_MAX];

    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        is_new[device] = !region->uuids[device][0];
    write_inventory(region, inventory);
    hami_limits_write_new(region, is_new);
}

bool hami_region_renew_inventory(hami_take_inventory *take_inventory)
{
    struct hami_inventory inventory = {.count = 0};
    struct hami_region *region = hami_region();

    take_inventory(&inventory);
    if (!hami_region_lock())
        return false;
    if (begin_to_replace_unless_used(region)) {
        memset(region->uuids, 0, sizeof(region->uuids));
        write_inventory(region, &inventory);
        hami_limits_write(region, false);
        atomic_store(&region->sem.is_replacing, 0);
    } else {
        add_devices(region, &inventory);
    }
    hami_limits_read_own(region);
    hami_region_unlock();
    return true;
}

int hami_region_refused_device(void)
{
    struct hami_region *region = hami_region();

    for (int device = HAMI_DEVICES_MAX - 1; device >= 0; device--) {
        if (region->uuids[device][0])
            continue;
        hami_limits_refuse(device);
        return device;
    }
    return -1;
}

int hami_region_device(const char *uuid)
{
    return hami_region() ? hami_region_device_in(hami_region(), uuid) : -1;
}

void hami_region_file_forget(void)
{
    hami_file_lock_forget(&region_lock);
    hami_file_lock_forget(&inventory_lock);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        hami_file_lock_forget(&contexts_locks[device]);
    hami_slot_lock_forget();
    hami_limits_forget();
    pthread_mutex_init(&attach_mutex, NULL);
}
