/*
 * The two parts of the driver that hold limits (limits.h). The caller of each function holds the lock.
 */
#ifndef FAKE_ACCOUNTING_H
#define FAKE_ACCOUNTING_H

#include "hardware/limits.h"
#include "hardware/state.h"

/* Write what the driver knows of a process in a folder's cgroup: that cgroup and those above it. */
void accounting_find_groups(const char *folder, struct hw_groups *groups);

/*
 * Return how the driver knows the cgroup of a folder: a number from 1 on, or 0 if there are too many. In misc it is the address of
 * the kernel's object, which another cgroup has after this one was removed.
 */
uint16_t accounting_pointer(const char *folder, uint64_t number);

/* Return what was set for a cgroup since the driver was loaded; NULL if nothing was. */
struct hw_limit *accounting_find(uint16_t pointer, int device);

/* Whether something was set for a cgroup by an earlier load, and nothing since. */
bool accounting_is_old(uint16_t pointer, int device);

/* Remember that something is set for a cgroup. Returns NULL if there are too many. */
struct hw_limit *accounting_keep(uint16_t pointer, int device);

/* dmem.c */
enum hw_limit_result dmem_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes);
enum hw_limit_result dmem_get(int device, const char *path, struct hw_limit_state *state);
bool dmem_allows(int device, uint64_t more_bytes);
uint64_t dmem_hard_limit_of(const char *folder, int device);
uint64_t dmem_used(uint64_t cgroup, int device);

/* misc.c */
enum hw_limit_result misc_set(int device, const char *path, uint64_t soft_bytes, uint64_t hard_bytes);
enum hw_limit_result misc_get(int device, const char *path, struct hw_limit_state *state);
bool misc_allows(const struct hw_process *process, int device, uint64_t more_bytes);
uint64_t misc_used(const struct hw_limit *limit);
bool misc_has(const char *folder);

#endif
