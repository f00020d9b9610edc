/*
 * What NVML says of this process: under which pid it is listed, and how much memory it has.
 *
 * NVML lists processes by the host's pids, and a container has its own pids. This process is recognised as the one that its first
 * context adds to a device's list, so no other program need tell it the host's pid. If others appear at the same time, it is found
 * among them later (candidates.h). NVML counts initialisations; the library initialises it once and keeps it.
 * Devices are indices into the region. Safe in any thread. Fork: call hami_own_process_forget() in the child.
 */
#ifndef HAMI_OWN_PROCESS_H
#define HAMI_OWN_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "candidates.h"

/* List a device's processes. False, and an empty list, if NVML does not answer. */
bool hami_nvml_list(int device, struct hami_nvml_processes *processes);

/* Find this process among those that appeared on a device while it made a context there. */
void hami_nvml_recognise(int device, const struct hami_nvml_processes *before, const struct hami_nvml_processes *after);
bool hami_nvml_is_recognised(void);

/*
 * Look for this process among the candidates, if that may tell more. `charged_bytes` is what it is charged for on a device where it
 * has a context, `is_unchanged` whether that was so while NVML was asked. Returns true if it was found now.
 */
bool hami_nvml_look_for_self(int device, uint64_t charged_bytes, bool (*is_unchanged)(const void *), const void *arguments);

/* Return this process's bytes of a device in `*bytes`. False if it is not recognised or NVML does not answer. */
bool hami_nvml_own_bytes(int device, uint64_t *bytes);

/* Return the bytes of a device that all processes together have; 0 if NVML does not answer. */
uint64_t hami_nvml_device_used(int device);

void hami_own_process_forget(void);

#endif
