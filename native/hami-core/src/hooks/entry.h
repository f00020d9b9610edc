/*
 * For each HOOK_FORWARD row: the thunk that entry.S defines, and the pointer to the driver's function that it jumps to.
 *
 * The pointer is NULL until the first call.
 */
#ifndef HAMI_ENTRY_H
#define HAMI_ENTRY_H

#define HOOK_CUSTOM(...)
#define HOOK_FORWARD(symbol, ...)                                            \
    extern char hami_thunk_##symbol[] __attribute__((visibility("hidden"))); \
    extern void *hami_forward_##symbol __attribute__((visibility("hidden")));
#include "hooks_cuda.def"
#include "hooks_nvml.def"
#undef HOOK_FORWARD
#undef HOOK_CUSTOM

#endif
