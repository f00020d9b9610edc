/*
 * The objects in this process, as the dynamic linker lists them for debuggers, and what they export.
 *
 * For lookups that cannot be asked of the dynamic linker, because the names it is asked by are ours. Only memory is read; objects that
 * are there at start never go away. Source: https://sourceware.org/glibc/wiki/LinkerInterface
 */
#ifndef HAMI_OBJECTS_H
#define HAMI_OBJECTS_H

/*
 * Sanitizer runtimes look functions up while they start, before instrumented code may run. What such a lookup passes through is never
 * instrumented, and calls nothing they intercept.
 */
#define HAMI_EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

/*
 * The first definition of a function after this library, as RTLD_NEXT has it; the first of all when this library was loaded late. NULL
 * when there is none. Usable before anything is initialised: takes no lock, allocates nothing, calls nothing.
 */
void *hami_object_next_definition(const char *name);

/* The first definition outside this library in an object after the one that an address lies in, or NULL. */
void *hami_object_definition_after(const void *address, const char *name);

#endif
