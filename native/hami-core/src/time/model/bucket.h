/*
 * The GPU time a container may still use of one device: a token bucket in one word that all its processes share.
 *
 * The word is the moment, in nanoseconds of CLOCK_MONOTONIC, at which what was used is paid for, if `percent` of every second are the
 * container's (the generic cell rate algorithm's arrival time). Work may start while that moment is not in the future; using GPU time
 * moves it. Nothing is ever held, so nothing is lost with a process that dies. Pure: no clock, no lock, no device. Any word is valid:
 * one that no debit can have made, as after a reboot or from a hand that scribbles in the file, counts as a fresh bucket.
 * Source of the algorithm: ITU-T I.371, annex A.
 */
#ifndef HAMI_BUCKET_H
#define HAMI_BUCKET_H

#include <stdint.h>

/* Unused time is kept this long: bursts of a program that stays below its share pass, and neighbours wait no longer than one. */
#define HAMI_BUCKET_KEPT_NS 100000000u

/* What is owed is forgiven beyond this, so that a kernel that does not end stops a container for a minute and not for ever. */
#define HAMI_BUCKET_OWED_NS 60000000000u

/* Use `gpu_ns` of GPU time, or give it back when negative. `percent` is 1 to 99. */
void hami_bucket_debit(_Atomic uint64_t *paid_at, uint64_t now_ns, int64_t gpu_ns, unsigned percent);

/* Nanoseconds until work may start; 0 when it may now. */
uint64_t hami_bucket_wait_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns);

/* Nanoseconds since work may start, HAMI_BUCKET_KEPT_NS at most: `percent` of them are unused GPU time. 0 when it may not. */
uint64_t hami_bucket_kept_ns(const _Atomic uint64_t *paid_at, uint64_t now_ns);

#endif
