/*
 * Empty versions of what hook_table.c and process.c supply, so that the folders below link without them.
 */
#include <stddef.h>

#include "hooks.h"
#include "lookup.h"
#include "region.h"

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS];
bool (*const hami_start)(void) = NULL;
void (*const hami_tell_unhooked_load)(enum hami_unhooked_load, const char *) = NULL;
