/*
 * How programs find the hooks: through the linker, which binds to the exported symbols, and through `dlsym`, `dlvsym` and
 * `cuGetProcAddress`, which are answered here.
 *
 * The rule: call the real lookup first, with the caller's own arguments. If it returns the driver's function of a symbol in the
 * tables, return the hook instead. A function that the driver lacks stays missing. A lookup initialises nothing.
 */
#ifndef HAMI_LOOKUP_H
#define HAMI_LOOKUP_H

#include "hami/region.h"

/*
 * What the exported lookups in entry.S do next: return `answer` if `jump` is NULL, else jump to `jump` with the caller's arguments
 * and return address, so that RTLD_NEXT means next after the caller.
 */
struct hami_lookup {
    void *answer;
    void *jump;
};

struct hami_lookup hami_decide_dlsym(void *handle, const char *symbol, const void *unused, const void *caller);
struct hami_lookup hami_decide_dlvsym(void *handle, const char *symbol, const char *version, const void *caller);

/*
 * dlopen and dlmopen always continue at the real function as the caller's own call, because glibc looks for a library as the caller
 * says (DT_RUNPATH, $ORIGIN). Here it is only noted what is about to be opened.
 */
struct hami_lookup hami_decide_dlopen(const char *file, int mode, const void *unused, const void *caller);
struct hami_lookup hami_decide_dlmopen(long link_namespace, const char *file, int mode, const void *caller);

/* Counts and says what no hook reaches: `file` is about to be opened, or has a second driver. process.c supplies it. */
extern void (*const hami_tell_unhooked_load)(enum hami_unhooked_load what, const char *file);

#endif
