/*
 * A lock on bytes of a file, between processes and between the threads of this process. The file need not exist.
 *
 * It may also share a byte, which it then takes first: locks that share the same byte do not exclude each other, but all of them
 * exclude a program that locks this byte for itself.
 *
 * The lock belongs to the open file, so the kernel drops it with the last descriptor, also when its holder dies. It does not
 * survive in a forked child: the open file is never mapped, and it is unlocked before the child closes its descriptor.
 *
 * Kernels before Linux 3.15, gVisor and some seccomp filters refuse locks of open files on bytes. There flock() locks a file of its
 * own beside the file, `<path>.lock-<first byte>`, which belongs to its open file too. Classic locks would not do: a process drops
 * them when it closes any descriptor of the file. All processes of a container are expected to have the same kind.
 */
#ifndef HAMI_FILE_LOCK_H
#define HAMI_FILE_LOCK_H

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lock_rank.h"

/* Open-file-description locks are newer than glibc 2.17. Source: Linux, include/uapi/asm-generic/fcntl.h. */
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif

struct hami_file_lock {
    enum hami_lock_rank rank;
    pthread_mutex_t mutex;
    int file; /* -1 while the lock is not held, or is between threads only; guarded by the mutex */
    int flocked; /* the file beside it that has the lock instead, or -1 */
    off_t first, bytes;
    off_t shared; /* the byte to share; 0 for none */
};

#define HAMI_FILE_LOCK(rank, first, bytes, shared) {rank, PTHREAD_MUTEX_INITIALIZER, -1, -1, first, bytes, shared}

/* Whether locks of an open file on bytes are refused. Asks the kernel with `file`, which is open and has no lock. */
bool hami_byte_locks_are_refused(int file);

/* Open the file to lock with flock() for a byte of a file. Returns -1 with errno if it is missing and not created. */
int hami_lock_file_open(const char *path, off_t first, bool is_created);

/*
 * Take the lock on a file, which is created if it is missing. With a NULL `path` the lock is between threads only. Sleeps for at
 * most `longest_wait_ms` while another thread or process has it, and adds that to `*slept_ns`. Returns false, without the lock and
 * with errno: EAGAIN if another still has it, ENOLCK if no kind of lock can be taken, otherwise what is wrong with the file.
 */
bool hami_file_lock_take(struct hami_file_lock *lock, const char *path, int longest_wait_ms, uint64_t *slept_ns);
void hami_file_lock_give(struct hami_file_lock *lock);

/* Forget the parent's lock. Call it in a forked child. */
void hami_file_lock_forget(struct hami_file_lock *lock);

#endif
