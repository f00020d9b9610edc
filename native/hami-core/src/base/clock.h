/*
 * The library's clock: CLOCK_MONOTONIC through libc. Nothing else reads it or sleeps on it, so that tests can replace it.
 */
#ifndef HAMI_CLOCK_H
#define HAMI_CLOCK_H

#include <errno.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t hami_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleep for at least `ns`. The caller must hold no lock. */
static inline void hami_sleep_ns(uint64_t ns)
{
    struct timespec rest = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR)
        continue;
}

#endif
