/*
 * How long a process waits for others, on a machine with too few processors for all that can run.
 *
 * Time in which the process itself runs or queues for a processor is no waiting. Those it waits for queue too: so the rest counts as
 * what it would be if nobody queued.
 */
#ifndef HAMI_PATIENCE_H
#define HAMI_PATIENCE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Seconds of the clock, and of the calling process's first thread so far. */
struct moment {
    double clock, ran, queued;
};

/* Source: Linux, Documentation/scheduler/sched-stats.rst. */
static inline struct moment moment_now(void)
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
    return (struct moment){(double)now.tv_sec + (double)now.tv_nsec / 1e9, (double)ran_ns / 1e9, (double)queued_ns / 1e9};
}

static inline double seconds_waited(struct moment since)
{
    struct moment now = moment_now();
    double ran = now.ran - since.ran, runnable = ran + now.queued - since.queued;
    double waited = now.clock - since.clock - runnable;

    return runnable > 0 ? waited * ran / runnable : waited;
}

#endif
