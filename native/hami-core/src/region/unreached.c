#include "unreached.h"

#include <stdatomic.h>

#include "region.h"

/* What was counted while there is no region. */
static _Atomic uint64_t early;

void hami_unreached_add(enum hami_unreached what)
{
    struct hami_region *region = hami_region();

    atomic_fetch_add(region ? &region->sem.unreached : &early, what == HAMI_OTHER_NAMESPACE ? (uint64_t)1 << 32 : 1);
}

void hami_unreached_publish(struct hami_region *region)
{
    atomic_fetch_add(&region->sem.unreached, atomic_exchange(&early, 0));
}
