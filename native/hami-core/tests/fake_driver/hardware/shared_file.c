#include "hardware/shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The positions of lock holders follow those that may be claimed. */
enum { HOLDERS_POSITION = 1 << 30 };

/* How long a waiter sleeps before it checks whether the holder lives. */
enum { LOOK_AFTER_NS = 5000000 };

#define HAS_WAITERS ((uint32_t)1 << 31)

/* What the file begins with. */
struct header {
    _Alignas(64) _Atomic uint32_t holders; /* how many numbers were given out */
};

static bool initialise_file(int descriptor, size_t bytes, void (*initialise)(void *))
{
    struct header *header;

    if (ftruncate(descriptor, (off_t)bytes) != 0)
        return false;
    header = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (header == MAP_FAILED)
        return false;
    if (initialise)
        initialise(header + 1);
    munmap(header, bytes);
    return true;
}

/* The file is built without a name and then linked. */
static int open_in_folder(const char *folder, const char *name, size_t bytes, void (*initialise)(void *))
{
    char path[4096], fresh[4200];
    int descriptor;

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    descriptor = open(path, O_RDWR | O_CLOEXEC);
    if (descriptor >= 0 || errno != ENOENT)
        return descriptor;
    snprintf(fresh, sizeof(fresh), "%s.%d.%zx", path, (int)getpid(), (size_t)(uintptr_t)&descriptor);
    descriptor = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return -1;
    fchmod(descriptor, 0666);
    if (initialise_file(descriptor, bytes, initialise))
        (void)!link(fresh, path);
    close(descriptor);
    unlink(fresh);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Open the file again, because an inherited or duplicated descriptor shares its locks. */
static int reopened(int descriptor)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", descriptor);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* The libraries of one process find each other's memory among the process's open files. */
static int open_private(const char *name, size_t bytes, void (*initialise)(void *))
{
    char path[32], wanted[64], target[128];
    int descriptor;

    snprintf(wanted, sizeof(wanted), "memfd:fake-driver-%s ", name);
    for (int number = 0; number < 1024; number++) {
        ssize_t length;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", number);
        length = readlink(path, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strstr(target, wanted))
            return reopened(number);
    }
    snprintf(wanted, sizeof(wanted), "fake-driver-%s", name);
    descriptor = (int)syscall(SYS_memfd_create, wanted, 1u);
    return descriptor >= 0 && initialise_file(descriptor, bytes, initialise) ? descriptor : -1;
}

/*
 * These locks stand for what NVIDIA's kernel module knows, so no filter that a test installs may refuse them. The kernel ignores the
 * upper half of the command, by which a filter tells them from others.
 */
#define OF_THE_DRIVER (1L << 32)

static bool lock_position(const struct shared_file *file, int position, int command, short type, struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = position, .l_len = 1};
    return syscall(SYS_fcntl, (long)file->descriptor, (long)command | OF_THE_DRIVER, lock) == 0;
}

bool shared_file_claim(const struct shared_file *file, int position)
{
    struct flock lock;

    return lock_position(file, position, F_OFD_SETLK, F_WRLCK, &lock);
}

void shared_file_release(const struct shared_file *file, int position)
{
    struct flock lock;

    lock_position(file, position, F_OFD_SETLK, F_UNLCK, &lock);
}

bool shared_file_is_claimed(const struct shared_file *file, int position)
{
    struct flock lock;

    return lock_position(file, position, F_OFD_GETLK, F_WRLCK, &lock) && lock.l_type != F_UNLCK;
}

/* Take a number and claim it. */
static void become_holder(struct shared_file *file)
{
    struct header *header = (struct header *)file->memory - 1;

    file->self = atomic_fetch_add(&header->holders, 1) + 1;
    shared_file_claim(file, HOLDERS_POSITION + (int)file->self);
}

bool shared_file_open(struct shared_file *file, const char *folder, const char *name, size_t bytes,
                      void (*initialise)(void *memory))
{
    struct header *header;

    bytes += sizeof(*header);
    file->descriptor = folder ? open_in_folder(folder, name, bytes, initialise) : open_private(name, bytes, initialise);
    if (file->descriptor < 0)
        return false;
    header = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    if (header == MAP_FAILED)
        return false;
    file->memory = header + 1;
    become_holder(file);
    return true;
}

int shared_file_hold(const struct shared_file *file, int position)
{
    struct shared_file again = {.descriptor = reopened(file->descriptor)};
    struct flock lock;

    if (again.descriptor >= 0 && !lock_position(&again, position, F_OFD_SETLK, F_RDLCK, &lock)) {
        close(again.descriptor);
        return -1;
    }
    return again.descriptor;
}

bool shared_file_is(const struct shared_file *file, int descriptor)
{
    struct stat ours, other;

    return fstat(descriptor, &other) == 0 && fstat(file->descriptor, &ours) == 0 && ours.st_dev == other.st_dev &&
           ours.st_ino == other.st_ino;
}

void shared_file_disown(struct shared_file *file)
{
    int inherited = file->descriptor;

    file->descriptor = reopened(inherited);
    close(inherited);
    become_holder(file);
}

static uint32_t holder_in(uint32_t lock)
{
    return lock & ~HAS_WAITERS;
}

static bool is_dead(const struct shared_file *file, uint32_t holder)
{
    return holder != file->self && !shared_file_is_claimed(file, HOLDERS_POSITION + (int)holder);
}

/*
 * Wait until a lock is free or its holder is dead, and return its value. A wake-up may be lost, because the woken waiter may die.
 */
static uint32_t wait_for_end(const struct shared_file *file, struct shared_lock *lock)
{
    const struct timespec look_after = {0, LOOK_AFTER_NS};

    for (;;) {
        uint32_t seen = atomic_fetch_or(&lock->holder, HAS_WAITERS) | HAS_WAITERS;

        if (!holder_in(seen))
            return seen;
        if (syscall(SYS_futex, &lock->holder, FUTEX_WAIT, seen, &look_after, NULL, 0) != 0 && errno == ETIMEDOUT &&
            is_dead(file, holder_in(seen)))
            return seen;
    }
}

bool shared_lock_take(const struct shared_file *file, struct shared_lock *lock)
{
    uint32_t left = 0;

    if (atomic_compare_exchange_strong(&lock->holder, &left, file->self))
        return false;
    do
        left = wait_for_end(file, lock);
    while (!atomic_compare_exchange_strong(&lock->holder, &left, file->self | HAS_WAITERS));
    return holder_in(left) != 0;
}

void shared_lock_give(struct shared_lock *lock)
{
    if (atomic_exchange(&lock->holder, 0) & HAS_WAITERS)
        syscall(SYS_futex, &lock->holder, FUTEX_WAKE, 1, NULL, NULL, 0);
}
