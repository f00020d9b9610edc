/*
 * The region in this process's memory, and whether other processes see it.
 *
 * At the bottom of the folder: it calls nothing, so that all files may ask it. region_file.c maps the region.
 * Safe in any thread; takes no lock. Fork: the child keeps the mapping.
 */
#ifndef HAMI_REGION_MAP_H
#define HAMI_REGION_MAP_H

#include <stdbool.h>

#include "hami/region.h"

/* Return the mapped region, or NULL before hami_region_attach(). */
struct hami_region *hami_region(void);

/* Whether the region is private to this process because no file could be used. False before there is one. */
bool hami_region_is_private(void);

/* Use a mapping from now on. Call it once, after what other threads may read of the region is written. */
void hami_region_use(struct hami_region *region, bool is_alone);

#endif
