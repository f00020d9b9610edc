/*
 * What goes wrong, as one sentence on stderr, which the container runtime shows with the failed container.
 */
#ifndef HAMI_LIMIT_HOOK_MESSAGE_H
#define HAMI_LIMIT_HOOK_MESSAGE_H

#include <stdbool.h>

/* Write the sentence once. Returns false, for the caller to return. */
bool hami_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
