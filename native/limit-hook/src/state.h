/*
 * The container's state, JSON that a container runtime writes to the hook's stdin.
 *
 * A Pod's author writes parts of it, such as annotations, so any content is safe: its size and its depth are bounded, and only the
 * member `pid` of the outermost object is used.
 * Source: https://github.com/opencontainers/runtime-spec/blob/v1.2.0/runtime.md#state
 */
#ifndef HAMI_LIMIT_HOOK_STATE_H
#define HAMI_LIMIT_HOOK_STATE_H

#include <stdbool.h>
#include <stddef.h>

enum { HAMI_STATE_BYTES_MAX = 4 << 20, HAMI_STATE_DEPTH_MAX = 32 };

/* Read a state, and write its pid, which is at least 1. Returns what is wrong with it, or NULL. */
const char *hami_state_pid(const char *text, size_t length, int *pid);

#endif
