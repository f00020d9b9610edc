/*
 * What the contexts of the container's processes take, one beside another.
 *
 * Owns the word of each slot that says what a context that is being made is expected to take.
 */
#ifndef HAMI_REGION_CONTEXTS_H
#define HAMI_REGION_CONTEXTS_H

#include <stdbool.h>
#include <stdint.h>

/* Say that a context is being made that is expected to take `bytes`. hami_region_least_context() finds it until it is counted. */
void hami_region_expect_context(int device, uint64_t bytes);
void hami_region_expect_no_context(int device);

/* Find the least that a context of any process in the container takes or is expected to take. False if there is none. */
bool hami_region_least_context(int device, uint64_t *bytes);

#endif
