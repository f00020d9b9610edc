/*
 * What code was loaded: how many loads there were since the last measurement, and what one took.
 *
 * NVML's answer takes long where many processes use a device. So loads are estimated, until they may have taken 64 MiB together.
 * Locks: that of overhead.h. Fork: call hami_code_loads_forget() in the child.
 */
#ifndef HAMI_CODE_LOADS_H
#define HAMI_CODE_LOADS_H

#include <stdbool.h>
#include <stdint.h>

void hami_code_loads_add(int device, uint64_t loads);

/* Find what one load takes. False if it is unknown, or if the loads since the last measurement may have taken too much. */
bool hami_code_load_cost(int device, uint64_t *bytes);

/* Note what all code takes now. If that is exact, learn from it what one load takes. */
void hami_code_loads_measured(int device, uint64_t code_bytes, bool is_exact);

void hami_code_loads_forget(void);

#endif
