#include "file_lock.h"

#include <errno.h>
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

static bool take_ranges(const struct hami_file_lock *lock, int command)
{
    return (!lock->shared || set(lock->file, command, F_RDLCK, lock->shared, 1)) &&
           set(lock->file, command, F_WRLCK, lock->first, lock->bytes);
}

/* Try to take the lock. Returns false with EAGAIN if another thread or process has it, or another errno. */
static bool try_to_take(struct hami_file_lock *lock, const char *path)
{
    int problem;

    if (pthread_mutex_trylock(&lock->mutex) != 0) {
        errno = EAGAIN;
        return false;
    }
    if (!path)
        return true;
    lock->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock->file >= 0 && take_ranges(lock, F_OFD_SETLK))
        return true;
    problem = errno == EACCES && lock->file >= 0 ? EAGAIN : errno;
    if (lock->file >= 0)
        close(lock->file);
    lock->file = -1;
    pthread_mutex_unlock(&lock->mutex);
    errno = problem;
    return false;
}

/* The time that is slept counts, so neither a clock that is set nor a process that is stopped ends the wait early. */
bool hami_file_lock_take(struct hami_file_lock *lock, const char *path, int longest_wait_ms, uint64_t *slept_ns)
{
    long left_us = longest_wait_ms * 1000L, pause_us = PAUSE_LEAST_US;

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
    if (lock->file >= 0) {
        set(lock->file, F_OFD_SETLK, F_UNLCK, 0, 0);
        close(lock->file);
    }
    lock->file = -1;
    pthread_mutex_unlock(&lock->mutex);
}

void hami_file_lock_forget(struct hami_file_lock *lock)
{
    if (lock->file >= 0)
        close(lock->file);
    lock->file = -1;
    pthread_mutex_init(&lock->mutex, NULL);
}
