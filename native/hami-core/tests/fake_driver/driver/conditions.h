/*
 * What a test makes the driver and the cards of a node do: the file `conditions` in FAKE_DRIVER_DIR.
 *
 * A line is `<subject> <condition> [<value>...]`. The subject is `driver`, `nvml` or the UUID of a GPU. ../README.md has the list of
 * conditions. This module reads lines, and knows what none of them means.
 *
 * The file `changed` holds 8 bytes, which a test overwrites with another number after each change of `conditions`. They are mapped,
 * so every process notices the change at its next call, and a call costs no system call.
 * Threads: what a query returns stays valid, because a version of the file is never freed.
 */
#ifndef FAKE_CONDITIONS_H
#define FAKE_CONDITIONS_H

#include <stdbool.h>
#include <stdint.h>

enum { CONDITION_VALUES_MAX = 4 };

struct condition {
    char subject[64];
    char name[32];
    char value[CONDITION_VALUES_MAX][64]; /* empty if not given */
};

/* Return a number that differs after each change; 0 without a folder. */
uint64_t conditions_version(void);

/* Return the first line of that subject and name at or after `from`, or NULL. For the first line `from` is NULL. */
const struct condition *conditions_find(const char *subject, const char *name, const struct condition *from);

/* Return the first value of a line as a number, or `otherwise` if there is no such line. */
int64_t conditions_number(const char *subject, const char *name, int64_t otherwise);

#endif
