/*
 * How often programs of the container opened a library where no hook reaches it.
 *
 * Owns the word of the region that counts this, which the monitor exports. What is counted before the region is mapped is added
 * when it is. Safe in any thread; takes no lock.
 */
#ifndef HAMI_UNHOOKED_LOADS_H
#define HAMI_UNHOOKED_LOADS_H

#include <stdint.h>

#include "hami/region.h"

/* Count one. */
void hami_unhooked_loads_add(enum hami_unhooked_load what);

/* Add to a region that is about to be used what was counted before there was one. */
void hami_unhooked_loads_publish(struct hami_region *region);

#endif
