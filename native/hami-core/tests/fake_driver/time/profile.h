/*
 * How full a device is along a context's clock, and where the next piece of work fits.
 *
 * Arithmetic only: no clock, no lock. Work is placed once and never moved: at the earliest time that is not before what it waits
 * for and that has room for its part of the device for its whole duration. A profile has no idle time before its end. Parts are
 * percent of the device's multiprocessors, 1 to 100. All zeros is an empty profile.
 */
#ifndef FAKE_PROFILE_H
#define FAKE_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PROFILE_WHOLE = 100 };

struct profile_step {
    uint64_t from_at;
    unsigned int used;
};

struct profile {
    struct profile_step *steps; /* ascending; the last one has used 0 and never ends */
    size_t count, room;
};

/*
 * Place work that may not begin before `earliest_at`, and set `end_at`. What is before `now_at` is forgotten. False without memory.
 */
bool profile_place(struct profile *profile, uint64_t now_at, uint64_t earliest_at, uint64_t duration, unsigned int part,
                   uint64_t *end_at);

void profile_clear(struct profile *profile);

#endif
