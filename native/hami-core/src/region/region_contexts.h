/*
 * What the contexts of the container's processes take, one beside another.
 *
 * Owns the word of each slot that says what a context of its process takes.
 */
#ifndef HAMI_REGION_CONTEXTS_H
#define HAMI_REGION_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Say what a context of this process takes, or one that is being made is expected to take. hami_region_dearest_context() finds it
 * until there is none.
 */
void hami_region_expect_context(int device, uint64_t bytes);
void hami_region_expect_no_context(int device);

/* Find the most that a context of any process in the container takes or is expected to take. False if there is none. */
bool hami_region_dearest_context(int device, uint64_t *bytes);

#endif
