#include "hardware_state.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PRIVATE_STATE_NAME "fake-driver-state"

enum { HW_MAGIC = 0x46414b4a };

struct hw_state *hw_state;
static struct hw_device devices[HW_DEVICES_MAX];
static int device_count;
static int state_file = -1;
static struct hw_process *self;
static uint64_t context_bytes;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

uint64_t hw_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void hw_lock(void)
{
    if (pthread_mutex_lock(&hw_state->mutex) == EOWNERDEAD) {
        hw_memory_recount();
        pthread_mutex_consistent(&hw_state->mutex);
    }
}

void hw_unlock(void)
{
    pthread_mutex_unlock(&hw_state->mutex);
}

/*
 * A process holds a lock on the byte of the state file that has its position, so that its end is seen by all, also from
 * containers whose processes have other numbers. An open file description's lock belongs to this copy of the library and
 * not to the process: libcuda's is not lost when libnvidia-ml closes the file.
 */
static bool lock_position(int position, int command, struct flock *lock)
{
    *lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = position, .l_len = 1};
    return fcntl(state_file, command, lock) == 0;
}

bool hw_is_held(int position)
{
    struct flock lock;

    return lock_position(position, F_OFD_GETLK, &lock) && lock.l_type != F_UNLCK;
}

void hw_reap_dead(void)
{
    for (int position = 0; position < hw_state->processes_end; position++) {
        struct hw_process *process = &hw_state->processes[position];

        if (!process->pid || process == self || hw_is_held(position))
            continue;
        hw_memory_forget(position);
        memset(process, 0, sizeof(*process));
    }
    hw_memory_collect();
}

static struct hw_process *claim_process(void)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int index = 0; index < HW_PROCESSES_MAX; index++) {
            struct hw_process *process = &hw_state->processes[index];
            struct flock lock;

            if (process->pid || !lock_position(index, F_OFD_SETLK, &lock))
                continue;
            memset(process, 0, sizeof(*process));
            process->pid = getpid();
            process->serial = ++hw_state->serials;
            if (index >= hw_state->processes_end)
                hw_state->processes_end = index + 1;
            return process;
        }
        hw_reap_dead();
    }
    return NULL;
}

/* A process appears on the node when it first takes something, so that lookers leave no trace. */
struct hw_process *hw_this_process(void)
{
    if (!self)
        self = claim_process();
    return self;
}

struct hw_process *hw_known_process(void)
{
    return self;
}

uint64_t hw_self(void)
{
    return self ? self->serial : 0;
}

/* Open the file anew, because a descriptor that was inherited or duplicated shares its locks. */
static int reopened(int file)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    return open(path, O_RDWR | O_CLOEXEC);
}

int hw_open_holding(int position)
{
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = position, .l_len = 1};
    int file = reopened(state_file);

    if (file >= 0 && fcntl(file, F_OFD_SETLK, &lock) != 0) {
        close(file);
        return -1;
    }
    return file;
}

bool hw_is_state(int file)
{
    struct stat ours, other;

    return fstat(file, &other) == 0 && fstat(state_file, &ours) == 0 && ours.st_dev == other.st_dev && ours.st_ino == other.st_ino;
}

static void forget_parent(void)
{
    int inherited = state_file;

    self = NULL;
    state_file = reopened(inherited);
    close(inherited);
}

static bool parse_device(char *row, struct hw_device *device)
{
    char *fields[5];
    char *rest = row;

    for (int index = 0; index < 5; index++) {
        fields[index] = strsep(&rest, ",");
        if (!fields[index])
            return false;
    }
    memset(device, 0, sizeof(*device));
    snprintf(device->uuid, sizeof(device->uuid), "%s", fields[0]);
    snprintf(device->name, sizeof(device->name), "%s", fields[1]);
    device->memory_bytes = strtoull(fields[2], NULL, 10) * HW_MIB;
    device->numa_node = (int)strtol(fields[3], NULL, 10);
    if (sscanf(fields[4], "%x:%x:%x", &device->pci_domain, &device->pci_bus, &device->pci_device) != 3)
        return false;
    snprintf(device->pci_bus_id, sizeof(device->pci_bus_id), "%08X:%02X:%02X.0", device->pci_domain, device->pci_bus,
             device->pci_device);
    return device->memory_bytes > 0;
}

static bool read_devices(const char *folder)
{
    char path[4096], row[512];
    FILE *file;

    snprintf(path, sizeof(path), "%s/devices.csv", folder);
    file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "fake driver: %s: %s\n", path, strerror(errno));
        return false;
    }
    if (!fgets(row, sizeof(row), file) || strncmp(row, "uuid,", 5) != 0) {
        fprintf(stderr, "fake driver: %s: first line is not the header uuid,name,memory_mib,numa_node,pci_bus_id\n", path);
        fclose(file);
        return false;
    }
    for (int line = 2; device_count < HW_DEVICES_MAX && fgets(row, sizeof(row), file); line++) {
        row[strcspn(row, "\r\n")] = '\0';
        if (row[0] == '\0')
            continue;
        if (!parse_device(row, &devices[device_count])) {
            fprintf(stderr, "fake driver: %s:%d: not uuid,name,memory_mib,numa_node,pci_bus_id\n", path, line);
            fclose(file);
            return false;
        }
        device_count++;
    }
    fclose(file);
    return true;
}

static void default_device(void)
{
    char row[] = "GPU-00000000-0000-4000-8000-000000000000,NVIDIA Fake GPU,16384,0,0000:01:00.0";

    device_count = parse_device(row, &devices[0]) ? 1 : 0;
}

static bool initialise(int file)
{
    struct hw_state *fresh;
    pthread_mutexattr_t attributes;

    if (ftruncate(file, sizeof(*fresh)) != 0)
        return false;
    fresh = mmap(NULL, sizeof(*fresh), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (fresh == MAP_FAILED)
        return false;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&fresh->mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    fresh->magic = HW_MAGIC;
    munmap(fresh, sizeof(*fresh));
    return true;
}

/* The file appears complete or not at all: it is built under a private name and linked to its own. */
static int open_shared_state(const char *folder)
{
    char path[4096], fresh[4200];
    int file;

    snprintf(path, sizeof(path), "%s/state", folder);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 || errno != ENOENT)
        return file;
    snprintf(fresh, sizeof(fresh), "%s.%d.%lx", path, (int)getpid(), (unsigned long)hw_now_ns());
    file = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0)
        return -1;
    fchmod(file, 0666);
    if (initialise(file))
        (void)!link(fresh, path);
    close(file);
    unlink(fresh);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* libcuda and libnvidia-ml of one process find each other's private state among the process's open files. */
static int open_private_state(void)
{
    char path[32], target[128];
    int file;

    for (int number = 0; number < 1024; number++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
        ssize_t length = readlink(path, target, sizeof(target) - 1);

        if (length <= 0)
            continue;
        target[length] = '\0';
        if (strstr(target, PRIVATE_STATE_NAME))
            return reopened(number);
    }
    file = (int)syscall(SYS_memfd_create, PRIVATE_STATE_NAME, 1u);
    return file >= 0 && initialise(file) ? file : -1;
}

static void open_hardware(void)
{
    const char *folder = getenv("FAKE_DRIVER_DIR");
    const char *context = getenv("FAKE_DRIVER_CONTEXT_MIB");
    bool is_shared = folder && folder[0];

    context_bytes = (context ? strtoull(context, NULL, 10) : 128) * HW_MIB;
    if (is_shared) {
        if (!read_devices(folder))
            return;
    } else {
        default_device();
    }
    state_file = is_shared ? open_shared_state(folder) : open_private_state();
    if (state_file < 0) {
        fprintf(stderr, "fake driver: cannot open the state of %s: %s\n", is_shared ? folder : "this process", strerror(errno));
        return;
    }
    hw_state = mmap(NULL, sizeof(*hw_state), PROT_READ | PROT_WRITE, MAP_SHARED, state_file, 0);
    if (hw_state == MAP_FAILED || hw_state->magic != HW_MAGIC) {
        fprintf(stderr, "fake driver: the state file is not one of this driver's\n");
        hw_state = NULL;
        return;
    }
    pthread_atfork(NULL, NULL, forget_parent);
}

bool hw_open(void)
{
    pthread_once(&opened, open_hardware);
    return hw_state != NULL;
}

int hw_device_count(void)
{
    return device_count;
}

const struct hw_device *hw_device(int device)
{
    return &devices[device];
}

uint64_t hw_context_bytes(void)
{
    return context_bytes;
}

static FILE *open_faults(void)
{
    const char *folder = getenv("FAKE_DRIVER_DIR");
    char path[4096];

    if (!folder || !folder[0])
        return NULL;
    snprintf(path, sizeof(path), "%s/xid", folder);
    return fopen(path, "re");
}

long hw_fault_end(void)
{
    FILE *file = open_faults();
    long end = 0;

    if (file) {
        if (fseek(file, 0, SEEK_END) == 0)
            end = ftell(file);
        fclose(file);
    }
    return end;
}

bool hw_next_fault(long *offset, int *device, unsigned int *xid)
{
    FILE *file = open_faults();
    char uuid[64], line[256];
    bool is_found = false;

    if (!file)
        return false;
    fseek(file, *offset, SEEK_SET);
    while (!is_found && fgets(line, sizeof(line), file) && strchr(line, '\n')) {
        *offset = ftell(file);
        if (sscanf(line, "%63s %u", uuid, xid) != 2)
            continue;
        for (int index = 0; index < device_count; index++) {
            if (strcmp(devices[index].uuid, uuid) == 0) {
                *device = index;
                is_found = true;
            }
        }
    }
    fclose(file);
    return is_found;
}
