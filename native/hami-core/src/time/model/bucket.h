/*
 * How much time of one device a container may still use: a token bucket in one word, shared by its processes.
 *
 * The word is the time, in nanoseconds of CLOCK_MONOTONIC, at which the debt is paid if the container gets `percent` of every
 * second (the theoretical arrival time of the generic cell rate algorithm). Work may start if that time is not in the future. Using
 * GPU time moves it. Nothing is ever held, so a process that dies takes nothing with it. Any content is valid: a word that no debit
 * can have written, as after a reboot, counts as a fresh bucket. Pure: no clock, no lock, no device.
 * Source of the algorithm: ITU-T I.371, annex A.
 */
#ifndef HAMI_BUCKET_H
#define HAMI_BUCKET_H

#include <stdint.h>

/*
 * Unused time is kept for this long. Bursts of a program below its share start at once, and delay other containers by no more than
 * this.
 */
#define HAMI_BUCKET_KEPT_NS 100000000u

/* The largest debt: a kernel that does not end stops its container for a minute and not for ever. */
#define HAMI_BUCKET_OWED_NS 60000000000u

/* Debit `gpu_ns` of GPU time; negative to give it back. `percent` is 1 to 99. */
void hami_bucket_debit(_Atomic uint64_t *paid_at, uint64_t now_ns, int64_t gpu_ns, unsigned percent);

/* Return the nanoseconds until work may start; 0 if it may start now. */
uint64_t hami_bucket_wait_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns);

/*
 * Return the nanoseconds since work may start, at most HAMI_BUCKET_KEPT_NS; 0 if it may not. `percent` of them are unused GPU time.
 */
uint64_t hami_bucket_kept_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns);

#endif
