/*
 * The objects in this process, as the dynamic linker lists them for debuggers, and what they export.
 *
 * For lookups that cannot use dlsym, because dlsym is hooked. Only memory is read. Objects that are there at start are never
 * unloaded.
 * Source: https://sourceware.org/glibc/wiki/LinkerInterface
 */
#ifndef HAMI_OBJECTS_H
#define HAMI_OBJECTS_H

#include <stddef.h>

/*
 * Sanitizer runtimes look functions up while they start, before instrumented code may run. So the functions that such a lookup uses
 * are not instrumented, and call nothing that sanitizers intercept.
 */
#define HAMI_EARLY __attribute__((no_sanitize("address", "undefined", "thread")))

/*
 * Find the first definition of a function after this library, as RTLD_NEXT does. If this library was loaded late, find the first of
 * all. Returns NULL if there is none. Usable before any initialisation: takes no lock, allocates nothing, calls nothing.
 */
void *hami_object_next_definition(const char *name);

/* Return the file of the first object whose name begins with `length` letters of `name`; NULL if there is none. */
const char *hami_object_file(const char *name, size_t length);

/* Find the first definition outside this library in an object after the one that contains an address; NULL if there is none. */
void *hami_object_definition_after(const void *address, const char *name);

#endif
