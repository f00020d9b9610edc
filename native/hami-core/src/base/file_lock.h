/*
 * A lock on bytes of a file, which need not be there, among processes and the threads of this one.
 *
 * It belongs to the open file and so ends with its last descriptor, as when its process dies. Two things keep it from living on in a
 * forked child: this open file is never mapped, and it is unlocked before the descriptor is forgotten.
 */
#ifndef HAMI_FILE_LOCK_H
#define HAMI_FILE_LOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

struct hami_file_lock {
    pthread_mutex_t mutex;
    int file; /* -1 while the lock is not held, or among threads only; guarded by the mutex */
    off_t first, bytes;
};

#define HAMI_FILE_LOCK(first, bytes) {PTHREAD_MUTEX_INITIALIZER, -1, first, bytes}

/*
 * Take the lock on a file, making it if need be; among threads only where `path` is NULL. Waits for `longest_wait_ms`, for ever if that
 * is negative. False, without a lock, when it cannot be had.
 */
bool hami_file_lock_take(struct hami_file_lock *lock, const char *path, int longest_wait_ms);
void hami_file_lock_give(struct hami_file_lock *lock);

/* Forget the parent's lock; called in a forked child. */
void hami_file_lock_forget(struct hami_file_lock *lock);

#endif
