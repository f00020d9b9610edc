/*
 * Launches of unknown cost. Each is timed, and tells the cost of its kind.
 *
 * Owns how many the container may have outstanding on a device. An advance is debited for each from a bucket that the container's
 * processes share, and given back when the cost is known. The bucket is not the one that launches of known cost wait for, so those
 * never wait for a probe. It fills like that one, so nobody waits long for a probe that does not end, or whose process died.
 * A probe is charged like other launches. What is expected of it is what recent ones cost.
 * Locks: the meter's (meter.h), unless a function says otherwise.
 */
#ifndef HAMI_PROBES_H
#define HAMI_PROBES_H

#include <stdbool.h>
#include <stdint.h>

#include "meter.h"

/*
 * The advance: at a limit of up to 12, one empties the bucket. It is less if recent probes were short, so that more of them are
 * outstanding, and more if they were long. None is so large that another probe waits longer for it than HAMI_PATIENCE_NS.
 */
#define HAMI_ADVANCE_NS 12000000u
#define HAMI_ADVANCE_MIN_NS 2000000u
#define HAMI_ADVANCE_MAX_NS 100000000u

/* Return what a probe is charged before it has run: what recent ones cost, at most HAMI_GUESS_NS. */
uint64_t hami_probes_estimate(const struct hami_meter *meter);

/* Whether recent probes were all short, less than HAMI_GUESS_NS. Then a kind may have several. */
bool hami_probes_are_short(const struct hami_meter *meter);

/* Whether no other probe may begin now. */
bool hami_probes_are_enough(const struct hami_device_now *now);

/* Return after how many nanoseconds a launch that waits for a probe should look again: soon, because most are short. */
uint64_t hami_probes_sleep_ns(const struct hami_device_now *now);

/* Debit the advance of a probe, which is returned. Give it back when the cost is known, or if the probe was not launched. */
uint64_t hami_probes_begin(const struct hami_device_now *now);
void hami_probes_end(const struct hami_device_now *now, uint64_t advance_ns);

/* Learn what a probe cost, or that one has run for HAMI_GUESS_NS. */
void hami_probes_learn(struct hami_meter *meter, uint64_t cost_ns);
void hami_probes_learn_of_long(struct hami_meter *meter);

#endif
