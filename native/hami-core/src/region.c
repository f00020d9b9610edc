#include "region.h"

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

#include "liveness.h"
#include "log.h"
#include "options.h"

#ifndef F_OFD_SETLKW
#define F_OFD_SETLKW 38
#endif

enum { RECENT_KERNEL_FRESH = 2 };

/* Where older versions keep their slots, to see whether a process still uses the file. Source: the layouts of HAMi-core's history. */
static const struct {
    off_t file_bytes;
    off_t slots, slot_count;
    size_t slot_bytes;
} older_layouts[] = {
    {804681, 1848, 804664, 784},    /* 8b7cd78, 2024-01 */
    {1197897, 1848, 1197880, 1168}, /* up to HAMi 2.4.0 */
    {2008985, 1888, 2008928, 1960}, /* HAMi 2.8.1 */
    {2008953, 1856, 2008896, 1960}, /* HAMi 2.4.1 to 2.8.0: this very layout, version 1.1 */
};

static struct hami_region *_Atomic mapped;
static struct hami_slot *_Atomic own_slot;
static struct hami_slot slot_outside; /* this process's, when the region has none left */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int lock_file = -1;
static bool is_private;

struct hami_region *hami_region(void)
{
    return atomic_load_explicit(&mapped, memory_order_acquire);
}

/* The lock */

static bool set_lock(int file, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = sizeof(struct hami_region)};
    int result;

    while ((result = fcntl(file, F_OFD_SETLKW, &range)) != 0 && errno == EINTR)
        continue;
    return result == 0;
}

/* Open and lock the region's file; -1 when it cannot be had. Pair with unlock_region(). The caller holds `mutex`. */
static int lock_region(void)
{
    int file = open(hami_options()->region_path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);

    if (file < 0)
        return -1;
    lock_file = file;
    if (set_lock(file, F_WRLCK))
        return file;
    lock_file = -1;
    close(file);
    return -1;
}

/*
 * The lock belongs to the open file and so ends with its last descriptor, as when its process dies. Two things keep it from living on in
 * a forked child: this open file is never mapped, and it is unlocked before the descriptor is forgotten.
 */
static void unlock_region(int file)
{
    set_lock(file, F_UNLCK);
    lock_file = -1;
    close(file);
}

/* Limits and devices */

/* The region index of each `_<i>` of the limits: the i-th UUID of NVIDIA_VISIBLE_DEVICES if that lists UUIDs, else i itself. */
static void order_of_limits(const struct hami_region *region, int order[HAMI_DEVICES_MAX])
{
    const char *entry = hami_options()->visible_devices;
    int listed = 0;

    for (int index = 0; index < HAMI_DEVICES_MAX; index++)
        order[index] = index;
    while (*entry && listed < HAMI_DEVICES_MAX) {
        size_t length = strcspn(entry, ",");
        int found = -1;

        for (int device = 0; device < HAMI_DEVICES_MAX; device++)
            if (length && length < HAMI_UUID_BYTES && strncmp(region->uuids[device], entry, length) == 0 &&
                region->uuids[device][length] == '\0')
                found = device;
        if (found < 0)
            break;
        order[listed++] = found;
        entry += length + (entry[length] == ',');
    }
    if (*entry)
        for (int index = 0; index < HAMI_DEVICES_MAX; index++)
            order[index] = index;
}

/* Store the environment's limits, or with `is_trial` only say whether that would change anything. */
static bool write_limits(struct hami_region *region, bool is_trial)
{
    const struct hami_options *options = hami_options();
    bool is_changed = region->priority != options->priority;
    int order[HAMI_DEVICES_MAX];

    order_of_limits(region, order);
    for (int index = 0; index < HAMI_DEVICES_MAX; index++) {
        is_changed |= atomic_load(&region->limit[order[index]]) != options->memory_limit_bytes[index] ||
                      atomic_load(&region->sm_limit[order[index]]) != options->sm_limit_percent[index];
        if (is_trial)
            continue;
        atomic_store(&region->limit[order[index]], options->memory_limit_bytes[index]);
        atomic_store(&region->sm_limit[order[index]], options->sm_limit_percent[index]);
    }
    if (!is_trial)
        region->priority = options->priority;
    return is_changed;
}

static int known_device(const struct hami_region *region, const char *uuid)
{
    for (int device = 0; uuid[0] && device < HAMI_DEVICES_MAX; device++)
        if (strncmp(region->uuids[device], uuid, HAMI_UUID_BYTES) == 0)
            return device;
    return -1;
}

/* Devices that are there already keep their places: others count in them. */
static void write_inventory(struct hami_region *region, hami_take_inventory *take_inventory)
{
    struct hami_inventory inventory;
    int place = 0;

    memset(&inventory, 0, sizeof(inventory));
    take_inventory(&inventory);
    for (int index = 0; index < inventory.count; index++) {
        if (!inventory.uuids[index][0] || known_device(region, inventory.uuids[index]) >= 0)
            continue;
        while (place < HAMI_DEVICES_MAX && region->uuids[place][0])
            place++;
        if (place < HAMI_DEVICES_MAX)
            memcpy(region->uuids[place], inventory.uuids[index], HAMI_UUID_BYTES);
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

/* Write a region into zeroed bytes, the magic last: whoever dies before that leaves a file that the next one begins anew. */
static void initialise(struct hami_region *region, hami_take_inventory *take_inventory)
{
    const struct hami_semaphore unlocked = {.value = 1, .shared = 128};

    region->major_version = HAMI_REGION_MAJOR;
    region->minor_version = HAMI_REGION_MINOR;
    region->sem = unlocked;
    region->sem_postinit = unlocked;
    write_inventory(region, take_inventory);
    write_limits(region, false);
    atomic_store(&region->utilization_switch, 1);
    atomic_store(&region->recent_kernel, RECENT_KERNEL_FRESH);
    atomic_store(&region->last_kernel_time, (uint64_t)time(NULL));
    atomic_store(&region->initialized_flag, HAMI_REGION_MAGIC);
}

/* Whose is a file */

static bool is_alive(int32_t pid, uint64_t tag, uint64_t start_ticks)
{
    uint64_t now = pid > 0 ? hami_start_ticks(pid) : 0;

    return now && (tag != HAMI_SLOT_TAG || now == start_ticks);
}

static bool slot_is_alive(struct hami_slot *slot)
{
    return is_alive(atomic_load(&slot->pid), atomic_load(&slot->tag), atomic_load(&slot->start_ticks));
}

static int claimed_slots(struct hami_region *region)
{
    int32_t count = atomic_load_explicit(&region->proc_num, memory_order_relaxed);

    if (count < 0)
        return 0;
    return count > HAMI_SLOTS_MAX ? HAMI_SLOTS_MAX : count;
}

static bool anyone_else_alive(struct hami_region *region)
{
    for (int index = 0; index < claimed_slots(region); index++) {
        struct hami_slot *slot = &region->procs[index];

        if (slot != atomic_load(&own_slot) && atomic_load(&slot->status) != HAMI_SLOT_FREE && slot_is_alive(slot))
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

static struct hami_region *map_shared(const char *path)
{
    int file = open(path, O_RDWR | O_CLOEXEC);
    void *address = MAP_FAILED;

    if (file >= 0) {
        address = mmap(NULL, sizeof(struct hami_region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
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

/* Everyone in the container may share the file, whatever this process's umask: only its creator can say so. */
static bool make_room(int file)
{
    struct stat status;

    if (fstat(file, &status) == 0 && status.st_uid == geteuid() && (status.st_mode & 0777) != 0666 && fchmod(file, 0666) != 0)
        hami_log(HAMI_LOG_WARNING, "%s cannot be opened to other users: %s", hami_options()->region_path, strerror(errno));
    return ftruncate(file, (off_t)HAMI_REGION_FILE_BYTES) == 0;
}

/* The environment differs from what the file says: it is right when nobody else lives by the file, as after a container's restart. */
static void settle_limits(struct hami_region *region)
{
    if (anyone_else_alive(region))
        hami_log(HAMI_LOG_WARNING, "the limits in %s differ from the environment and are in use; they stand",
                 hami_options()->region_path);
    else
        write_limits(region, false);
}

/* The file as others left it, if it says all that this process would say: then there is nothing to lock it for. */
static struct hami_region *attach_ready(void)
{
    struct hami_region *region;
    int file = open(hami_options()->region_path, O_RDWR | O_CLOEXEC);
    bool is_ready = file >= 0 && state_of(file) == FILE_READY;

    if (file >= 0)
        close(file);
    region = is_ready ? map_shared(hami_options()->region_path) : NULL;
    if (!region || (is_same_version(region) && region->device_count && !write_limits(region, true)))
        return region;
    munmap(region, sizeof(*region));
    return NULL;
}

static struct hami_region *attach_file(hami_take_inventory *take_inventory)
{
    const char *path = hami_options()->region_path;
    struct hami_region *region = NULL;
    enum file_state state;
    int file = lock_region();

    if (file < 0) {
        hami_log(HAMI_LOG_ERROR, "%s cannot be opened and locked: %s; limits hold for each process by itself", path,
                 strerror(errno));
        return NULL;
    }
    state = state_of(file);
    if (state == FILE_FOREIGN)
        hami_log(HAMI_LOG_ERROR, "%s has another layout and live owners; limits hold for each process by itself", path);
    else if ((state == FILE_READY || make_room(file)) && (region = map_shared(path)) == NULL)
        hami_log(HAMI_LOG_ERROR, "%s cannot be mapped: %s; limits hold for each process by itself", path, strerror(errno));
    if (region && state == FILE_STALE)
        wipe(region);
    if (region && state != FILE_READY)
        initialise(region, take_inventory);
    else if (region && !region->device_count)
        write_inventory(region, take_inventory);
    if (region && state == FILE_READY && write_limits(region, true))
        settle_limits(region);
    unlock_region(file);
    return region;
}

void hami_region_attach(hami_take_inventory *take_inventory)
{
    struct hami_region *region;

    if (hami_region())
        return;
    pthread_mutex_lock(&mutex);
    if (!hami_region()) {
        region = attach_ready();
        if (!region)
            region = attach_file(take_inventory);
        if (!region) {
            is_private = true;
            region = map_private();
            if (region)
                initialise(region, take_inventory);
        }
        atomic_store_explicit(&mapped, region, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
}

void hami_region_renew_inventory(hami_take_inventory *take_inventory)
{
    int file;

    pthread_mutex_lock(&mutex);
    file = is_private ? -1 : lock_region();
    if (file >= 0 || is_private) {
        if (!anyone_else_alive(hami_region()))
            memset(hami_region()->uuids, 0, sizeof(hami_region()->uuids));
        write_inventory(hami_region(), take_inventory);
        write_limits(hami_region(), false);
    }
    if (file >= 0)
        unlock_region(file);
    pthread_mutex_unlock(&mutex);
}

int hami_region_device(const char *uuid)
{
    return hami_region() ? known_device(hami_region(), uuid) : -1;
}

/* Slots */

static void clear_use(struct hami_slot *slot)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        atomic_store(&slot->used[device].total, 0);
        atomic_store(&slot->used[device].context, 0);
        atomic_store(&slot->used[device].module, 0);
        atomic_store(&slot->used[device].data, 0);
        atomic_store(&slot->used[device].offset, 0);
        atomic_store(&slot->monitor_used[device], 0);
    }
    memset(slot->device_use, 0, sizeof(slot->device_use));
    atomic_store(&slot->status, HAMI_SLOT_FREE);
    atomic_store(&slot->seqlock, 0);
    atomic_store(&slot->tag, 0);
    atomic_store(&slot->start_ticks, 0);
    atomic_store(&slot->host_pid, 0);
}

/* Usage goes first: nobody may count a slot that nobody owns. Whoever wants the slot waits for its pid to be 0. */
static void empty_slot(struct hami_slot *slot)
{
    clear_use(slot);
    atomic_store(&slot->pid, 0);
}

/* Let the slots up to one count. Its owner says so again before each charge, should anybody who shrinks die half-way. */
static void include(struct hami_region *region, const struct hami_slot *slot)
{
    int32_t wanted = (int32_t)(slot - region->procs) + 1;
    int32_t count = atomic_load_explicit(&region->proc_num, memory_order_relaxed);

    while (count < wanted && !atomic_compare_exchange_weak(&region->proc_num, &count, wanted))
        continue;
}

/* Leave free slots at the end out. One that was claimed meanwhile is taken in again. */
static void shrink(struct hami_region *region)
{
    int32_t before = atomic_load(&region->proc_num);
    int count = claimed_slots(region);
    int end = count;

    while (count > 0 && atomic_load(&region->procs[count - 1].pid) == 0)
        count--;
    if (count == before || !atomic_compare_exchange_strong(&region->proc_num, &before, count))
        return;
    while (end > count && atomic_load(&region->procs[end - 1].pid) == 0)
        end--;
    if (end > count)
        include(region, &region->procs[end - 1]);
}

static int sweep_locked(struct hami_region *region)
{
    int swept = 0;

    for (int index = 0; index < claimed_slots(region); index++) {
        struct hami_slot *slot = &region->procs[index];

        if (slot == atomic_load(&own_slot) || atomic_load(&slot->pid) == 0 || slot_is_alive(slot))
            continue;
        hami_log(HAMI_LOG_DECISION, "process %d is gone; its slot is free", atomic_load(&slot->pid));
        empty_slot(slot);
        swept++;
    }
    shrink(region);
    return swept;
}

/* Take a slot whose pid is 0, at once and for good. */
static bool take_slot(struct hami_slot *slot, int32_t pid)
{
    int32_t nobody = 0;

    return atomic_load_explicit(&slot->pid, memory_order_relaxed) == 0 && atomic_compare_exchange_strong(&slot->pid, &nobody, pid);
}

static struct hami_slot *take_free_slot(struct hami_region *region, int32_t pid)
{
    for (int index = 0; index < HAMI_SLOTS_MAX; index++) {
        if (!take_slot(&region->procs[index], pid))
            continue;
        include(region, &region->procs[index]);
        return &region->procs[index];
    }
    return NULL;
}

/* Whether a claimed slot's process is gone. Needs no lock, for what it says of the dead stays true. */
static bool anyone_died(struct hami_region *region)
{
    for (int index = 0; index < claimed_slots(region); index++)
        if (&region->procs[index] != atomic_load(&own_slot) && atomic_load(&region->procs[index].pid) != 0 &&
            !slot_is_alive(&region->procs[index]))
            return true;
    return false;
}

/* Empty the slots of the dead; how many there were. One process at a time; the caller holds `mutex`. */
static int sweep_slots(struct hami_region *region)
{
    int file = is_private ? -1 : lock_region();
    int swept;

    if (file < 0)
        return 0;
    swept = sweep_locked(region);
    unlock_region(file);
    return swept;
}

/* Who this process is. */
struct identity {
    int32_t pid, host_pid;
    uint64_t start_ticks;
};

static struct identity own_identity(void)
{
    int32_t pid = (int32_t)getpid();

    return (struct identity){pid, hami_pid_is_host_pid() ? pid : 0, hami_start_ticks(pid)};
}

static void occupy(struct hami_slot *slot, const struct identity *self)
{
    clear_use(slot);
    atomic_store(&slot->start_ticks, self->start_ticks);
    atomic_store(&slot->tag, HAMI_SLOT_TAG);
    atomic_store(&slot->host_pid, self->host_pid);
    atomic_store(&slot->pid, self->pid);
    atomic_store(&slot->status, HAMI_SLOT_RUNNING);
}

/*
 * A slot with this very pid that this process did not claim is a predecessor's. Where everybody takes it for a living one's, it is this
 * process's from before exec, or was never tagged, and it is taken over; where it is known to be dead it is swept.
 */
static struct hami_slot *inherit_slot(struct hami_region *region, int32_t pid)
{
    struct hami_slot *inherited = NULL;
    bool is_dead = false;

    for (int index = 0; index < hami_region_count(region); index++) {
        struct hami_slot *slot = &region->procs[index];

        if (atomic_load_explicit(&slot->pid, memory_order_relaxed) != pid)
            continue;
        if (hami_slot_is_alive(slot))
            inherited = slot;
        else
            is_dead = true;
    }
    if (is_dead)
        sweep_slots(region);
    return inherited;
}

static struct hami_slot *claim_inside(struct hami_region *region, const struct identity *self)
{
    struct hami_slot *slot = inherit_slot(region, self->pid);

    if (!slot)
        slot = take_free_slot(region, self->pid);
    if (!slot && sweep_slots(region))
        slot = take_free_slot(region, self->pid);
    if (slot)
        occupy(slot, self);
    return slot;
}

static struct hami_slot *claim_outside(const struct identity *self)
{
    hami_log(HAMI_LOG_ERROR, "%s has no slot for this process: its use counts for itself only", hami_options()->region_path);
    occupy(&slot_outside, self);
    return &slot_outside;
}

static struct hami_slot *claim(void)
{
    struct hami_region *region = hami_region();
    struct identity self = own_identity();
    struct hami_slot *slot;

    if (!region)
        return NULL;
    pthread_mutex_lock(&mutex);
    slot = atomic_load(&own_slot);
    if (!slot) {
        slot = claim_inside(region, &self);
        if (!slot)
            slot = claim_outside(&self);
        atomic_store(&own_slot, slot);
    }
    pthread_mutex_unlock(&mutex);
    return slot;
}

struct hami_slot *hami_region_slot_at(int index)
{
    struct hami_region *region = hami_region();

    if (region && index < claimed_slots(region))
        return &region->procs[index];
    return region && index == claimed_slots(region) && atomic_load(&own_slot) == &slot_outside ? &slot_outside : NULL;
}

struct hami_slot *hami_region_slot(void)
{
    struct hami_slot *slot = atomic_load_explicit(&own_slot, memory_order_acquire);

    return slot ? slot : claim();
}

void hami_region_sweep(void)
{
    struct hami_region *region = hami_region();

    if (!region || is_private || !anyone_died(region))
        return;
    pthread_mutex_lock(&mutex);
    sweep_slots(region);
    pthread_mutex_unlock(&mutex);
}

void hami_region_sweep_if_stale(void)
{
    static _Atomic time_t swept_at;
    struct hami_region *region = hami_region();
    time_t now = time(NULL);

    if (!region || claimed_slots(region) < 2 || atomic_exchange(&swept_at, now) == now)
        return;
    hami_region_sweep();
}

void hami_region_release(void)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (!slot || atomic_load(&slot->pid) != (int32_t)getpid())
        return;
    atomic_store(&own_slot, NULL);
    empty_slot(slot);
    shrink(hami_region());
}

void hami_region_forget(void)
{
    struct hami_slot *parents = atomic_load(&own_slot);

    if (lock_file >= 0)
        close(lock_file);
    lock_file = -1;
    if (parents && (is_private || parents == &slot_outside))
        empty_slot(parents);
    atomic_store(&own_slot, NULL);
    pthread_mutex_init(&mutex, NULL);
}

/* Charging */

uint64_t hami_region_limit(int device)
{
    struct hami_region *region = hami_region();

    return region && device >= 0 ? atomic_load_explicit(&region->limit[device], memory_order_relaxed) : 0;
}

uint64_t hami_region_used(int device)
{
    struct hami_region *region = hami_region();
    uint64_t used = atomic_load_explicit(&slot_outside.used[device].total, memory_order_relaxed);

    for (int index = 0; region && index < claimed_slots(region); index++)
        if (atomic_load_explicit(&region->procs[index].pid, memory_order_relaxed))
            used += atomic_load_explicit(&region->procs[index].used[device].total, memory_order_seq_cst);
    return used;
}

uint64_t hami_region_own_data(int device)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    return slot ? atomic_load(&slot->used[device].data) : 0;
}

static void add(struct hami_slot *slot, int device, uint64_t bytes)
{
    atomic_fetch_add(&slot->used[device].data, bytes);
    atomic_fetch_add(&slot->used[device].total, bytes);
}

/* A charge that the slot does not hold cannot be taken from it: totals never wrap. */
static void subtract(_Atomic uint64_t *value, uint64_t bytes)
{
    uint64_t before = atomic_load(value);

    while (!atomic_compare_exchange_weak(value, &before, before > bytes ? before - bytes : 0))
        continue;
}

void hami_region_discharge(int device, uint64_t bytes)
{
    struct hami_slot *slot = atomic_load(&own_slot);

    if (!slot || !bytes)
        return;
    subtract(&slot->used[device].data, bytes);
    subtract(&slot->used[device].total, bytes);
}

void hami_region_charge_anyway(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        add(slot, device, bytes);
}

/* The difference is added as a whole, modulo 2^64: the total holds the old value already. */
static void state(_Atomic uint64_t *total, _Atomic uint64_t *field, uint64_t bytes)
{
    atomic_fetch_add(total, bytes - atomic_exchange(field, bytes));
}

void hami_region_state_context(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        state(&slot->used[device].total, &slot->used[device].context, bytes);
}

void hami_region_state_module(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        state(&slot->used[device].total, &slot->used[device].module, bytes);
}

void hami_region_state_host_pid(int32_t pid)
{
    struct hami_slot *slot = hami_region_slot();

    if (slot)
        atomic_store(&slot->host_pid, pid);
}

uint64_t hami_region_least_context(int device)
{
    struct hami_slot *slot;
    uint64_t least = 0;

    for (int index = 0; (slot = hami_region_slot_at(index)) != NULL; index++) {
        uint64_t bytes = atomic_load(&slot->pid) ? atomic_load(&slot->used[device].context) : 0;

        if (bytes && (!least || bytes < least))
            least = bytes;
    }
    return least;
}

/*
 * Whoever adds first and reads the sum afterwards cannot miss another's addition: of two processes that together pass the limit at
 * least one sees it. Both may; each then takes its own back, and the second try of one of them succeeds.
 */
bool hami_region_charge(int device, uint64_t bytes)
{
    struct hami_slot *slot = hami_region_slot();
    uint64_t limit;

    if (!slot)
        return false;
    if (slot != &slot_outside)
        include(hami_region(), slot);
    for (int attempt = 0; attempt < 3; attempt++) {
        limit = hami_region_limit(device);
        if (limit && bytes > limit)
            return false;
        add(slot, device, bytes);
        if (!limit || hami_region_used(device) <= limit)
            return true;
        hami_region_discharge(device, bytes);
        if (attempt == 0)
            hami_region_sweep();
        else if (attempt == 1)
            nanosleep(&(struct timespec){0, 50000 + 1000 * (getpid() % 64)}, NULL);
    }
    return false;
}
