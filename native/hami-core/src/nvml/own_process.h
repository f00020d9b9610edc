/*
 * What NVML says of this process: which of its pids it is, and how much memory it has.
 *
 * NVML knows processes by the host's pids, a container by its own. The process is recognised as the one that its first context adds to a
 * device's list, so the host's pid need not be told by anybody. NVML is initialised once and kept, for it counts initialisations.
 * Devices are indices into the region. Safe in any thread; takes no lock. Fork: call hami_nvml_self_forget() in the child.
 */
#ifndef HAMI_OWN_PROCESS_H
#define HAMI_OWN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "hooks.h"

enum { HAMI_NVML_PROCESSES_MAX = 256 };

/* The processes with a context on a device. */
struct hami_nvml_processes {
    unsigned int count;
    nvmlProcessInfo_v2_t list[HAMI_NVML_PROCESSES_MAX];
};

/* List a device's processes; false, and none, when NVML does not say. */
bool hami_nvml_list(int device, struct hami_nvml_processes *processes);

/* Find this process among those that came to a device while its first context was made. */
void hami_nvml_recognise(const struct hami_nvml_processes *before, const struct hami_nvml_processes *after);
bool hami_nvml_is_recognised(void);

/* Bytes this process has of a device; false when it is not recognised or NVML does not say. */
bool hami_nvml_own_bytes(int device, uint64_t *bytes);

/* Bytes that all processes together have of a device; 0 when NVML does not say. */
uint64_t hami_nvml_card_used(int device);

void hami_nvml_self_forget(void);

#endif
