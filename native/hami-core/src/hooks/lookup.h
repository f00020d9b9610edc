/*
 * How programs reach the hooks: the linker binds to our exported symbols; `dlsym`, `dlvsym` and `cuGetProcAddress` are answered here.
 *
 * The rule for all: ask the real one first, with the caller's own arguments, and only if its answer is the driver's function for a
 * symbol in the tables, answer with the hook of that symbol. What the driver lacks stays lacking. Asking initialises nothing.
 */
#ifndef HAMI_LOOKUP_H
#define HAMI_LOOKUP_H

/*
 * What the exported lookups of entry.S do: return `answer` if `jump` is NULL, else continue at `jump` with the caller's arguments
 * and return address, so that RTLD_NEXT means next after the caller.
 */
struct hami_lookup {
    void *answer;
    void *jump;
};

struct hami_lookup hami_decide_dlsym(void *handle, const char *symbol, const void *unused, const void *caller);
struct hami_lookup hami_decide_dlvsym(void *handle, const char *symbol, const char *version, const void *caller);

#endif
