/*
 * The processes of which one is this process: those that appeared in a device's list while its first context was made.
 *
 * If contexts of several containers are made at the same time, each sees all of them appear. Which one it is shows later, by what
 * NVML counts for a process beyond this process's charges:
 *
 *   less than nothing: it is another process
 *   shrunk in two looks: another, because contexts and code hardly ever shrink
 *   the same in three more looks than for any other, while the charges changed: this process
 *
 * A process that has ended is another, and so is one that does not appear on a second device while a context is made there.
 * Locks: one mutex, never held while the driver is called. Fork: call hami_candidates_forget() in the child.
 */
#ifndef HAMI_CANDIDATES_H
#define HAMI_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/nvml_abi.h"

enum { HAMI_NVML_PROCESSES_MAX = 256 };

/* The processes with a context on a device. */
struct hami_nvml_processes {
    unsigned int count;
    nvmlProcessInfo_v2_t list[HAMI_NVML_PROCESSES_MAX];
};

/* Whether several processes may be this one. Costs one load. */
bool hami_candidates_are_any(void);

/*
 * A context was made on a device: this process is one of those that appeared between the two lists, and a candidate already if there
 * are any. Returns its pid if that leaves one, otherwise 0.
 */
unsigned int hami_candidates_meet(int device, const struct hami_nvml_processes *before, const struct hami_nvml_processes *after);

/*
 * Whether a look at the device may tell more: this process's charges there have changed by 8 MiB since the last, which was not in this
 * second or is one of the first 16.
 */
bool hami_candidates_are_due(int device, uint64_t charged_bytes);

/* Compare the list of a device with what this process is charged for. Returns this process's pid if one is left, otherwise 0. */
unsigned int hami_candidates_look(int device, const struct hami_nvml_processes *listed, uint64_t charged_bytes);

/* Memory beyond the charges was given back: it may be less than in former looks. */
void hami_candidates_restart(void);

void hami_candidates_forget(void);

#endif
