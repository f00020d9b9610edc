/*
 * How long a process waits for others, not counting the time in which it runs or waits for a processor.
 */
#ifndef HAMI_PATIENCE_H
#define HAMI_PATIENCE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/*
 * Return the seconds in which the calling process's first thread was not runnable. Only differences have a meaning.
 * Source: Linux, Documentation/scheduler/sched-stats.rst.
 */
static inline double seconds_asleep(void)
{
    FILE *file = fopen("/proc/self/schedstat", "re");
    unsigned long long ran_ns, queued_ns;
    struct timespec now;

    if (!file || fscanf(file, "%llu %llu", &ran_ns, &queued_ns) != 2) {
        fprintf(stderr, "/proc/self/schedstat cannot be read\n");
        abort();
    }
    fclose(file);
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + ((double)now.tv_nsec - (double)ran_ns - (double)queued_ns) / 1e9;
}

#endif
