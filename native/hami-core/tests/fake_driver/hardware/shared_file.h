/*
 * A file that all processes of a node map, with locks and claims that survive or end with a process.
 *
 * Owns the creation of the file (it appears complete or not at all), claims on positions in it, which end with the process, and
 * locks that survive their holder. Knows nothing of the content. Untouched pages take no space, so a large file is cheap.
 *
 * Fork: a child shares its parent's claims until it calls shared_file_disown(), which leaves it without claims.
 */
#ifndef FAKE_SHARED_FILE_H
#define FAKE_SHARED_FILE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct shared_file {
    int descriptor;
    void *memory;
    uint32_t self; /* identifies this process as a holder of locks; never reused. A claim says that it is alive */
};

/* A lock in the file. It is free when zero. */
struct shared_lock {
    _Atomic uint32_t holder;
};

/*
 * Map `bytes` of the file `name` in `folder`. Without a folder, map memory of this process that is common to all libraries in it
 * which open the same name. The first to open it runs `initialise`, if not NULL, on zeroed memory before any other sees it.
 * Returns false with errno set.
 */
bool shared_file_open(struct shared_file *file, const char *folder, const char *name, size_t bytes,
                      void (*initialise)(void *memory));

/*
 * Claim a position, 0 <= position < 2^30, while this process lives and keeps the file open. Claims are locks of an open file
 * description, so they are seen from every pid namespace, and a library keeps them when another closes the file.
 */
bool shared_file_claim(const struct shared_file *file, int position);
void shared_file_release(const struct shared_file *file, int position);

/* Whether another process, or another library of this process, has claimed the position. */
bool shared_file_is_claimed(const struct shared_file *file, int position);

/*
 * Claim a position together with others, while the returned descriptor is open anywhere; it may be passed to other processes. -1 if
 * there are no more descriptors.
 */
int shared_file_hold(const struct shared_file *file, int position);

/* Whether a descriptor belongs to this file. */
bool shared_file_is(const struct shared_file *file, int descriptor);

/* Drop the parent's claims, in a forked child. */
void shared_file_disown(struct shared_file *file);

/*
 * Wait for a lock and take it. Returns whether its last holder died with it, so that what it guards may be incomplete.
 *
 * A robust POSIX mutex does not work here. It identifies holders by thread ids, which other pid namespaces have too. And if a
 * waiter is killed after it was woken while a newcomer has the mutex, the newcomer wakes no one, and the other waiters sleep for
 * ever.
 */
bool shared_lock_take(const struct shared_file *file, struct shared_lock *lock);
void shared_lock_give(struct shared_lock *lock);

#endif
