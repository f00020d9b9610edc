#include "blocks.h"

#include <stdatomic.h>

#include "region.h"

#define SMALL ((uint64_t)1 << 20)

static _Atomic uint64_t small_bytes[HAMI_DEVICES_MAX];

uint64_t hami_rounded(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

uint64_t hami_whole_blocks(uint64_t bytes)
{
    return hami_rounded(bytes, HAMI_MEMORY_BLOCK);
}

/* The allocation that needs another block charges it. The free that empties a block discharges it. */
static bool charge_small(int device, uint64_t bytes)
{
    uint64_t before = atomic_load(&small_bytes[device]);

    for (;;) {
        uint64_t grown = hami_whole_blocks(before + bytes) - hami_whole_blocks(before);

        if (grown && !hami_region_charge(device, grown))
            return false;
        if (atomic_compare_exchange_strong(&small_bytes[device], &before, before + bytes))
            return true;
        hami_region_discharge(device, grown);
    }
}

static void discharge_small(int device, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub(&small_bytes[device], bytes);

    hami_region_discharge(device, hami_whole_blocks(before) - hami_whole_blocks(before - bytes));
}

bool hami_blocks_charge(int device, uint64_t bytes)
{
    if (bytes < SMALL)
        return charge_small(device, hami_rounded(bytes, HAMI_MEMORY_UNIT));
    return hami_region_charge(device, hami_whole_blocks(bytes));
}

void hami_blocks_discharge(int device, uint64_t bytes)
{
    if (bytes < SMALL)
        discharge_small(device, hami_rounded(bytes, HAMI_MEMORY_UNIT));
    else
        hami_region_discharge(device, hami_whole_blocks(bytes));
}

void hami_blocks_forget(void)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        atomic_store(&small_bytes[device], 0);
}
