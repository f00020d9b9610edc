#include "file_lock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

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

static bool wait_for(const struct hami_file_lock *lock, int longest_wait_ms)
{
    if (longest_wait_ms < 0)
        return take_ranges(lock, F_OFD_SETLKW);
    for (int waited_ms = 0; !take_ranges(lock, F_OFD_SETLK); waited_ms++) {
        if (waited_ms == longest_wait_ms)
            return false;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return true;
}

bool hami_file_lock_take(struct hami_file_lock *lock, const char *path, int longest_wait_ms)
{
    pthread_mutex_lock(&lock->mutex);
    if (!path)
        return true;
    lock->file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (lock->file >= 0 && wait_for(lock, longest_wait_ms))
        return true;
    if (lock->file >= 0)
        close(lock->file);
    lock->file = -1;
    pthread_mutex_unlock(&lock->mutex);
    return false;
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
