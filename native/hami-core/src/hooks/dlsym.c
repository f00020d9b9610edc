#include "dlsym.h"

#include <stdatomic.h>
#include <stddef.h>

#include "objects.h"

typedef void *(*dlsym_type)(void *, const char *);
typedef void *(*dlvsym_type)(void *, const char *, const char *);

/* The real functions cannot be looked up with dlsym: every name for them is this library's own. */
HAMI_EARLY static void *real_lookup(_Atomic(void *) *known, const char *name)
{
    void *found = atomic_load_explicit(known, memory_order_acquire);

    if (!found) {
        found = hami_object_next_definition(name);
        atomic_store_explicit(known, found, memory_order_release);
    }
    return found;
}

HAMI_EARLY void *hami_libc_dlsym(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlsym");
}

HAMI_EARLY void *hami_libc_dlvsym(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlvsym");
}

HAMI_EARLY void *hami_libc_dlopen(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlopen");
}

HAMI_EARLY void *hami_libc_dlmopen(void)
{
    static _Atomic(void *) known;

    return real_lookup(&known, "dlmopen");
}

void *hami_real_dlsym(void *handle, const char *symbol)
{
    dlsym_type real = (dlsym_type)hami_libc_dlsym();

    return real ? real(handle, symbol) : NULL;
}

void *hami_real_dlvsym(void *handle, const char *symbol, const char *version)
{
    dlvsym_type real = (dlvsym_type)hami_libc_dlvsym();

    return real ? real(handle, symbol, version) : NULL;
}
