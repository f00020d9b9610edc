/*
 * Since when the container runs a launch that the others no longer wait for: one word for each device, shared by its processes.
 *
 * The word has the time at which the oldest such launch began, and the time until which that is known, so a process that dies
 * leaves nothing behind. Both are counted in units of about a millisecond. Any content is valid. Pure: no clock, no lock, no
 * device.
 */
#ifndef HAMI_LONG_RUN_H
#define HAMI_LONG_RUN_H

#include <stdint.h>

/* The launch is forgotten if it is not noted again for this long. */
#define HAMI_LONG_RUN_KNOWN_NS 500000000u

/* Note that a launch which began at `since_ns` still runs. */
void hami_long_run_note(_Atomic uint64_t *word, uint64_t since_ns, uint64_t now_ns);

/* Return when the oldest such launch began, within two milliseconds and the same at each call; 0 if there is none. */
uint64_t hami_long_run_since(const _Atomic uint64_t *word, uint64_t now_ns);

#endif
