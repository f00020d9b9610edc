#include "unhooked_loads.h"

#include <stdatomic.h>

#include "region_map.h"

/* What was counted while there is no region. */
static _Atomic uint64_t early;

void hami_unhooked_loads_add(enum hami_unhooked_load what)
{
    struct hami_region *region = hami_region();

    atomic_fetch_add(region ? &region->sem.unhooked_loads : &early, what == HAMI_OTHER_NAMESPACE ? (uint64_t)1 << 32 : 1);
}

void hami_unhooked_loads_publish(struct hami_region *region)
{
    atomic_fetch_add(&region->sem.unhooked_loads, atomic_exchange(&early, 0));
}
