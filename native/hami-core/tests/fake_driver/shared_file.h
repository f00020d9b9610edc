/*
 * A file that all processes of a node map, and what makes sharing it safe.
 *
 * Owns the file's birth (it appears complete or not at all), claims on positions in it, which end with the process, and locks that
 * outlive their holder. Knows nothing of what is in the memory. Pages that nobody writes take no room, so a large file is cheap.
 *
 * Fork: a child shares its parent's claims until it calls shared_file_disown(), which leaves it with none.
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
    uint32_t self; /* who holds locks here, a number that no other process has or had; a claim says that it lives */
};

/* A lock in the file, free when it is zero. */
struct shared_lock {
    _Atomic uint32_t holder;
};

/*
 * Map `bytes` of the file `name` in `folder`; without a folder, of memory that is this process's own but common to all libraries in
 * it that open the same name. The first to open it runs `initialise`, if not NULL, on zeroed memory before anybody else sees it.
 * Returns false with errno set.
 */
bool shared_file_open(struct shared_file *file, const char *folder, const char *name, size_t bytes,
                      void (*initialise)(void *memory));

/*
 * Claim a position, 0 <= position < 2^30, for as long as this process lives and keeps the file open. Claims are locks of an open file
 * description, so they are seen from every pid namespace, and one library's are not lost when another closes the file.
 */
bool shared_file_claim(const struct shared_file *file, int position);
void shared_file_release(const struct shared_file *file, int position);

/* Whether another process, or another library of this one, has claimed the position. */
bool shared_file_is_claimed(const struct shared_file *file, int position);

/*
 * Claim a position, along with others, for as long as the descriptor that this returns is open anywhere: it may be passed on. -1 when
 * there are no more descriptors.
 */
int shared_file_hold(const struct shared_file *file, int position);

/* Whether a descriptor is one of this file. */
bool shared_file_is(const struct shared_file *file, int descriptor);

/* In a forked child: stop holding the parent's claims. */
void shared_file_disown(struct shared_file *file);

/*
 * Wait for a lock and take it. Returns whether the last holder died with it: what it guards may be half written.
 *
 * A robust mutex of POSIX would not do. It knows holders by thread ids, which other pid namespaces have too; and when a waiter is
 * killed after it was woken, while a newcomer has the mutex, the newcomer wakes nobody: the other waiters sleep for ever.
 */
bool shared_lock_take(const struct shared_file *file, struct shared_lock *lock);
void shared_lock_give(struct shared_lock *lock);

#endif
