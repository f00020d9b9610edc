/*
 * What the driver takes for an allocation, charged to the region: blocks of 2 MiB.
 *
 * A request of 1 MiB or more gets its own blocks. Smaller ones, in units of 512 bytes, share blocks. A charge keeps the requested
 * bytes, so that it costs the same when it ends.
 * Source: CUDA Programming Guide (alignment of device memory), and cuMemGetInfo before and after allocations of each size.
 * Locks: none. Fork: call hami_blocks_forget() in the child.
 */
#ifndef HAMI_BLOCKS_H
#define HAMI_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define HAMI_MEMORY_UNIT 512u
#define HAMI_MEMORY_BLOCK ((uint64_t)2 << 20)

/* Round bytes up to a multiple of `unit`; UINT64_MAX if that does not fit. */
uint64_t hami_rounded(uint64_t bytes, uint64_t unit);

/* Return what the driver takes for an allocation with its own blocks; UINT64_MAX if that does not fit. */
uint64_t hami_whole_blocks(uint64_t bytes);

/* Charge to a region device what the driver takes for `bytes`, or discharge it. False, and no charge, if it passes the limit. */
bool hami_blocks_charge(int device, uint64_t bytes);
void hami_blocks_discharge(int device, uint64_t bytes);

void hami_blocks_forget(void);

#endif
