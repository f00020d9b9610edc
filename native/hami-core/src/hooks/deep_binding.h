/*
 * Libraries that are opened with RTLD_DEEPBIND: the dynamic linker binds them to what they need before what is preloaded, so to the
 * driver's functions and to the C library's dlsym.
 *
 * The flag stays, because a program may need it. At the first lookup after the library is loaded, its references to functions with a
 * hook are changed to the hooks: those that are bound to the real function, and those that are not bound yet. What its constructors
 * call is not seen. A reference to anything else, such as another preloaded library, is left.
 * Costs nothing before the first such flag. From then on each lookup asks the dynamic linker whether objects were loaded.
 * Locks: the dynamic linker's, while references are changed; nothing is looked up meanwhile. Fork: nothing changes.
 */
#ifndef HAMI_DEEP_BINDING_H
#define HAMI_DEEP_BINDING_H

#include <stdatomic.h>
#include <stdbool.h>

extern _Atomic bool hami_deep_binding_is_expected;

/* A library is about to be opened with the flag. */
void hami_deep_binding_expect(void);

/* Change the references of the objects that were loaded since hami_deep_binding_expect(). */
void hami_deep_binding_rebind(void);

#endif
