/*
 * What both proofs share: the library's account beside the fake driver's, and children that must end as planned.
 *
 * The judge is a process without memory. It reads the region's sum as the monitor does, and asks the driver's oracle.
 */
#ifndef HAMI_JUDGE_H
#define HAMI_JUDGE_H

#include <stdint.h>

enum { DEVICES = 2 };

/* What a device's processes have: by the library's account, and in the driver. */
struct verdict {
    uint64_t accounted, truth, limit;
    uint64_t peak; /* the most that was taken since the driver's files were made */
    int live_slots;
};

/* Start the judge, before any other process of the proof, and before this one uses CUDA. */
void judge_start(void);

/* Sweep dead processes and look. Waits for the answer. */
struct verdict judge_ask(int device);

void judge_end(void);

/* CLOCK_MONOTONIC. */
double seconds_now(void);

/* Print a line on stderr, and end the process and with it the proof. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
