/*
 * Which function answers for which symbol.
 *
 * It is above all folders because it names functions of all of them. hooks.h declares the table.
 */
#include "hooks.h"

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS] = {
#define HOOK(symbol, since) {#symbol, since, HAMI_LIBRARY_CUDA, (void *)symbol, (void **)&hami_real.symbol},
#include "hooks_cuda.def"
#undef HOOK
#define HOOK(symbol) {#symbol, 0, HAMI_LIBRARY_NVML, (void *)symbol, (void **)&hami_real.symbol},
#include "hooks_nvml.def"
#undef HOOK
};
