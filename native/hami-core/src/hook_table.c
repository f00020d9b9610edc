/*
 * Which function answers for which symbol.
 *
 * It is above all folders because it names functions of all of them. hooks.h declares the table.
 */
#include "hooks.h"

#include "entry.h"

const struct hami_hook_row hami_hook_rows[HAMI_HOOKS] = {
#define HOOK_CUSTOM(symbol, since) {#symbol, since, false, HAMI_LIBRARY_CUDA, (void *)symbol, (void **)&hami_real.symbol},
#define HOOK_FORWARD(symbol, since) {#symbol, since, true, HAMI_LIBRARY_CUDA, hami_thunk_##symbol, &hami_forward_##symbol},
#include "hooks_cuda.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM
#define HOOK_CUSTOM(symbol) {#symbol, 0, false, HAMI_LIBRARY_NVML, (void *)symbol, (void **)&hami_real.symbol},
#define HOOK_FORWARD(symbol) {#symbol, 0, true, HAMI_LIBRARY_NVML, hami_thunk_##symbol, &hami_forward_##symbol},
#include "hooks_nvml.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM
};
