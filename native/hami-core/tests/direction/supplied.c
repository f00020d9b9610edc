/*
 * What the top supplies to the folders below, empty: with it they link without the top.
 */
#include <stddef.h>

#include "hooks.h"
#include "region.h"

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS];
bool (*const hami_start)(void) = NULL;
