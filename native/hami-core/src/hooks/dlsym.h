/*
 * The C library's own dlsym, dlvsym, dlopen and dlmopen, which this library's exported ones hide.
 *
 * Usable before any initialisation. Takes no lock of this library.
 */
#ifndef HAMI_DLSYM_H
#define HAMI_DLSYM_H

/* Call the C library's function. Returns NULL also if the process has no such function. */
void *hami_real_dlsym(void *handle, const char *symbol);
void *hami_real_dlvsym(void *handle, const char *symbol, const char *version);

/* Return the address of the C library's function, or NULL if the process has none. */
void *hami_libc_dlsym(void);
void *hami_libc_dlvsym(void);
void *hami_libc_dlopen(void);
void *hami_libc_dlmopen(void);

#endif
