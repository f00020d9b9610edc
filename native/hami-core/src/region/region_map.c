#include "region_map.h"

#include <stdatomic.h>
#include <stddef.h>

static struct hami_region *_Atomic mapped;
static _Atomic bool is_private;

struct hami_region *hami_region(void)
{
    return atomic_load_explicit(&mapped, memory_order_acquire);
}

bool hami_region_is_private(void)
{
    return atomic_load(&is_private);
}

void hami_region_use(struct hami_region *region, bool is_alone)
{
    atomic_store(&is_private, is_alone);
    atomic_store_explicit(&mapped, region, memory_order_release);
}
