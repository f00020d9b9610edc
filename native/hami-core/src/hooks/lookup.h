/*
 * How programs find the hooks: through the linker, which binds to the exported symbols, and through `dlsym`, `dlvsym` and
 * `cuGetProcAddress`, which are answered here.
 *
 * The rule: call the real lookup first, with the caller's own arguments. If it returns the driver's function of a symbol in the
 * tables, return the hook instead. A function that the driver lacks stays missing. A lookup initialises nothing.
 */
#ifndef HAMI_LOOKUP_H
#define HAMI_LOOKUP_H

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

#endif
