/*
 * What both proofs need: the library's account beside what the fake driver knows, and children that end as they should.
 *
 * The judge is a process that holds no memory: it reads the region's sum as the monitor does, and asks the driver's oracle.
 */
#ifndef HAMI_JUDGE_H
#define HAMI_JUDGE_H

#include <stdint.h>

enum { DEVICES = 2 };

/* What a device's processes have, by the library's account and in truth. */
struct verdict {
    uint64_t accounted, truth, limit;
    uint64_t peak; /* the most that was taken since the driver's files were made */
    int live_slots;
};

/* Start the judge. Call it before any other process of the proof exists, and never after CUDA was used here. */
void judge_start(void);

/* Sweep the dead and look; waits for the answer. */
struct verdict judge_ask(int device);

void judge_end(void);

/* CLOCK_MONOTONIC. */
double seconds_now(void);

/* Write a line to stderr and end the process, and with it the proof. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
