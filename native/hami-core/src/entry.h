/*
 * How programs reach the hooks: the linker binds to our exported symbols; `dlsym` and `cuGetProcAddress` are answered here.
 *
 * The rule for both: ask the real one first, with the caller's own arguments, and only if its answer is the driver's function for a
 * symbol in the tables, answer with the hook of that symbol. What the driver lacks stays lacking.
 */
#ifndef HAMI_ENTRY_H
#define HAMI_ENTRY_H

/* The C library's dlsym, called from this library. Usable before any other initialisation; takes no lock of ours. */
void *hami_real_dlsym(void *handle, const char *symbol);

/*
 * What the exported `dlsym` does: return `answer` if `jump` is NULL, else continue at `jump` with the caller's arguments and
 * return address, so that RTLD_NEXT means next after the caller.
 */
struct hami_dlsym_decision {
    void *answer;
    void *jump;
};

struct hami_dlsym_decision hami_decide_dlsym(void *handle, const char *symbol, const void *caller);

#endif
