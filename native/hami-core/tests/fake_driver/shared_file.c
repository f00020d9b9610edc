#include "shared_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool initialise_file(int descriptor, size_t bytes, void (*initialise)(void *))
{
    void *memory;

    if (ftruncate(descriptor, (off_t)bytes) != 0)
        return false;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (memory == MAP_FAILED)
        return false;
    initialise(memory);
    munmap(memory, bytes);
    return true;
}

/* The file is built without a name and then linked to its own. */
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

/* Open the file anew, because a descriptor that was inherited or duplicated shares its locks. */
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

bool shared_file_open(struct shared_file *file, const char *folder, const char *name, size_t bytes, void (*initialise)(void *memory))
{
    file->descriptor = folder ? open_in_folder(folder, name, bytes, initialise) : open_private(name, bytes, initialise);
    if (file->descriptor < 0)
        return false;
    file->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->descriptor, 0);
    return file->memory != MAP_FAILED;
}

static bool lock_position(const struct shared_file *file, int position, int command, short type, struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = position, .l_len = 1};
    return fcntl(file->descriptor, command, lock) == 0;
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
}

void shared_mutex_initialise(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void shared_mutex_lock(pthread_mutex_t *mutex)
{
    if (pthread_mutex_lock(mutex) == EOWNERDEAD)
        pthread_mutex_consistent(mutex);
}
