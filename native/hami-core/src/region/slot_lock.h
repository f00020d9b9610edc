/*
 * The lock of a slot, which its process holds while it lives. For region.c and region_file.c.
 *
 * Each pid namespace numbers processes by itself. A process in a nested one, or beside this one, has a slot whose pid means nothing
 * here or belongs to another process. What every namespace sees is a lock on a file: here on one byte for each slot, far behind the
 * file's end. It belongs to an open file, so the kernel drops it when the process ends or executes another program, as it does with
 * the driver's files and the memory behind them. Where such locks are refused it is a file for each slot (file_lock.h). A process
 * that cannot open one more file has none; then its pid decides.
 * Threads: take and give are called under one lock; the others are safe in any thread.
 */
#ifndef HAMI_SLOT_LOCK_H
#define HAMI_SLOT_LOCK_H

#include <stdbool.h>

/* Take the lock of a slot in place of the one that this process has. Returns false if another process has it. Never waits. */
bool hami_slot_lock_take(int index);
void hami_slot_lock_give(void);

/* Whether another process has the lock of a slot; true also if that cannot be found out. */
bool hami_slot_is_locked(int index);

/* Forget the parent's lock. Call it in a forked child. */
void hami_slot_lock_forget(void);

#endif
