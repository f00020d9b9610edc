#include "file_lock.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

static bool set(const struct hami_file_lock *lock, int command, short type)
{
    struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = lock->first, .l_len = lock->bytes};
    int result;

    while ((result = fcntl(lock->file, command, &range)) != 0 && errno == EINTR)
        continue;
    return result == 0;
}

static bool wait_for(const struct hami_file_lock *lock, int longest_wait_ms)
{
    if (longest_wait_ms < 0)
        return set(lock, F_OFD_SETLKW, F_WRLCK);
    for (int waited_ms = 0; !set(lock, F_OFD_SETLK, F_WRLCK); waited_ms++) {
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
        set(lock, F_OFD_SETLK, F_UNLCK);
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
