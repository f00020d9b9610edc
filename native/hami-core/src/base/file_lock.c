#include "file_lock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_LEAST_US = 100, PAUSE_MOST_US = 10000 };

static bool set(int file, int command, short type, off_t first, off_t bytes)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = first, .l_len = bytes};
    int result;

    while ((result = fcntl(file, command, &range)) != 0 && errno == EINTR)
        continue;
    return result == 0;
}

/* Unlocking what is not locked changes nothing and is never in another's way. */
bool hami_byte_locks_are_refused(int file)
{
    return !set(file, F_OFD_SETLK, F_UNLCK, 0, 1);
}

/* All users in the container may lock it, whatever this process's umask is. */
int hami_lock_file_open(const char *path, off_t first, bool is_created)
{
    char name[PATH_MAX];
    int file;

    if (snprintf(name, sizeof(name), "%s.lock-%llx", path, (unsigned long long)first) >= (int)sizeof(name)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    file = open(name, O_RDONLY | O_CLOEXEC);
    if (file >= 0 || !is_created)
        return file;
    file = open(name, O_RDONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file >= 0)
        fchmod(file, 0666);
    return file;
}

static bool take_ranges(const struct hami_file_lock *lock)
{
    return (!lock->shared || set(lock->file, F_OFD_SETLK, F_RDLCK, lock->shared, 1)) &&
           set(lock->file, F_OFD_SETLK, F_WRLCK, lock->first, lock->bytes);
}

/* Keep the file open: it is what the lock is about, whichever is locked. */
static bool take_file(struct hami_file_lock *lock, const char *path)
{
    lock->flocked = hami_lock_file_open(path, lock->first, true);
    if (lock->flocked >= 0 && flock(lock->flocked, LOCK_EX | LOCK_NB) == 0)
        return true;
    if (lock->flocked < 0 || errno != EWOULDBLOCK)
        errno = ENOLCK;
    return false;
}

static bool take_open(struct hami_file_lock *lock, const char *path)
{
    int problem;

    if (take_ranges(lock))
        return true;
    problem = errno;
    if (hami_byte_locks_are_refused(lock->file))
        return take_file(lock, path);
    errno = problem == EACCES ? EAGAIN : problem;
    return false;
}

static void close_files(struct hami_file_lock *lock)
{
    if (lock->file >= 0)
        close(lock->file);
    if (lock->flocked >= 0)
        close(lock->flocked);
    lock->file = lock->flocked = -1;
}

/* Try to take the lock. Returns false with EAGAIN if another thread or process has it, or another errno. */
static bool try_to_take(struct hami_file_lock *lock, const char *path)
{
    int problem;

    if (!hami_try_lock(&lock->mutex, lock->rank)) {
        errno = EAGAIN;
        return false;
    }
    if (!path)
        return true;
    lock->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock->file >= 0 && take_open(lock, path))
        return true;
    problem = errno;
    close_files(lock);
    hami_unlock(&lock->mutex, lock->rank);
    errno = problem;
    return false;
}

/* The time that is slept counts, so neither a clock that is set nor a process that is stopped ends the wait early. */
bool hami_file_lock_take(struct hami_file_lock *lock, const char *path, int longest_wait_ms, uint64_t *slept_ns)
{
    long left_us = longest_wait_ms * 1000L, pause_us = PAUSE_LEAST_US;

    if (longest_wait_ms)
        hami_rank_check(lock->rank);
    while (!try_to_take(lock, path)) {
        if (errno != EAGAIN || left_us <= 0)
            return false;
        if (pause_us > left_us)
            pause_us = left_us;
        nanosleep(&(struct timespec){0, pause_us * 1000}, NULL);
        left_us -= pause_us;
        *slept_ns += (uint64_t)pause_us * 1000u;
        pause_us = pause_us < PAUSE_MOST_US / 2 ? pause_us * 2 : PAUSE_MOST_US;
    }
    return true;
}

void hami_file_lock_give(struct hami_file_lock *lock)
{
    if (lock->flocked >= 0)
        flock(lock->flocked, LOCK_UN);
    else if (lock->file >= 0)
        set(lock->file, F_OFD_SETLK, F_UNLCK, 0, 0);
    close_files(lock);
    hami_unlock(&lock->mutex, lock->rank);
}

void hami_file_lock_forget(struct hami_file_lock *lock)
{
    close_files(lock);
    pthread_mutex_init(&lock->mutex, NULL);
}
