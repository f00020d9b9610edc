/*
 * What the targets share: a promise that ends the program when it is broken, and a file with any content.
 */
#ifndef HAMI_FUZZ_H
#define HAMI_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PROMISE(condition)                                                                  \
    do {                                                                                    \
        if (!(condition)) {                                                                 \
            fprintf(stderr, "ERROR: broken: %s (%s:%d)\n", #condition, __FILE__, __LINE__); \
            abort();                                                                        \
        }                                                                                   \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *count, char ***arguments);

/* Return a descriptor of a file in memory, the same at each call, with `size` bytes of `content`. */
static inline int file_of(const void *content, size_t size)
{
    static int file = -1;

    if (file < 0)
        file = memfd_create("input", 0);
    PROMISE(file >= 0 && ftruncate(file, 0) == 0 && pwrite(file, content, size, 0) == (ssize_t)size);
    return file;
}

#endif
