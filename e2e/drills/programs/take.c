/*
 * Take device memory, as any program would: open the driver's library, find its functions, allocate.
 *
 *   take DRIVER [managed] MIB... [HANDLE]
 *
 * HANDLE is the interprocess handle of another process's memory in hexadecimal digits, which counts as amount 0. Prints `MIB: RESULT`
 * for each amount, and keeps what it got until it is killed. Built as a program, as a static program, and as the
 * library that `load` opens.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void function_t(void);

static function_t *function(void *driver, const char *name)
{
    function_t *found = (function_t *)(uintptr_t)dlsym(driver, name);

    if (!found) {
        fprintf(stderr, "take: %s\n", dlerror());
        exit(1);
    }
    return found;
}

static void start(void *driver)
{
    void *context;

    ((int (*)(unsigned int))function(driver, "cuInit"))(0);
    ((int (*)(void **, int))function(driver, "cuDevicePrimaryCtxRetain"))(&context, 0);
    ((int (*)(void *))function(driver, "cuCtxSetCurrent"))(context);
}

static int allocate(void *driver, size_t bytes, int is_managed)
{
    uint64_t pointer;

    if (is_managed)
        return ((int (*)(uint64_t *, size_t, unsigned int))function(driver, "cuMemAllocManaged"))(&pointer, bytes, 1);
    return ((int (*)(uint64_t *, size_t))function(driver, "cuMemAlloc_v2"))(&pointer, bytes);
}

enum { HANDLE_BYTES = 64, IPC_MEM_LAZY_ENABLE_PEER_ACCESS = 1 };

/* Open another process's memory. */
static int import(void *driver, const char *digits)
{
    struct {
        unsigned char bytes[HANDLE_BYTES];
    } handle;
    uint64_t pointer;

    for (int index = 0; index < HANDLE_BYTES; index++)
        sscanf(digits + 2 * index, "%2hhx", &handle.bytes[index]);
    return ((int (*)(uint64_t *, __typeof__(handle), unsigned int))function(driver, "cuIpcOpenMemHandle_v2"))(
        &pointer, handle, IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

int take(int count, char **arguments)
{
    void *driver = dlopen(arguments[1], RTLD_NOW);
    int is_managed = count > 2 && strcmp(arguments[2], "managed") == 0;

    if (!driver) {
        fprintf(stderr, "take: %s\n", dlerror());
        return 1;
    }
    start(driver);
    for (int index = 2 + is_managed; index < count; index++) {
        if (strlen(arguments[index]) == 2 * HANDLE_BYTES)
            printf("0: %d\n", import(driver, arguments[index]));
        else
            printf("%s: %d\n", arguments[index], allocate(driver, strtoul(arguments[index], NULL, 10) << 20, is_managed));
        fflush(stdout);
    }
    for (;;)
        pause();
}

#ifndef LIBRARY
int main(int count, char **arguments)
{
    return take(count, arguments);
}
#endif
