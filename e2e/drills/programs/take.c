/*
 * Take a device's memory or time, as any program would: open the driver's library, find its functions, allocate.
 *
 *   take DRIVER [managed] MIB... [HANDLE]
 *   take DRIVER busy MILLISECONDS
 *
 * The second runs kernels for so long, and prints `FINISHED: PASSED` in milliseconds: how much work of the whole device was done in which
 * time. HANDLE is the interprocess handle of another process's memory in hexadecimal digits, which counts as amount 0. Prints `MIB: RESULT`
 * for each amount, and keeps what it got until it is killed. Built as a program, as a static program, and as the
 * library that `load` opens.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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

enum { KERNEL_MS = 20, KERNELS_AHEAD = 4, FIRST_MS = 1000 };

static long long now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/*
 * Keep the device busy with kernels that take KERNEL_MS each on a whole device, so many ahead that a program which has to wait for a
 * processor keeps it busy, too. What happens in the first second does not count: limits may lend some time at first. The time is the
 * device's, from the end of one kernel to the end of another, because a program may learn of both late. One that gets no context finishes
 * none.
 */
static void be_busy(void *driver, long long milliseconds)
{
    int (*launch)(void *, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, unsigned int, void *,
                  void **, void **) = (__typeof__(launch))function(driver, "cuLaunchKernel");
    int (*make)(void **, unsigned int) = (__typeof__(make))function(driver, "cuEventCreate");
    int (*record)(void *, void *) = (__typeof__(record))function(driver, "cuEventRecord");
    int (*wait)(void *) = (__typeof__(wait))function(driver, "cuEventSynchronize");
    int (*measure)(float *, void *, void *) = (__typeof__(measure))function(driver, "cuEventElapsedTime");
    void *module, *kernel, *first, *ended[KERNELS_AHEAD];
    long long begun = now_ms(), counted_from = -1, finished = 0;
    float passed_ms = 1;

    if (((int (*)(void **, const void *))function(driver, "cuModuleLoadData"))(&module, "busy") != 0 ||
        ((int (*)(void **, void *, const char *))function(driver, "cuModuleGetFunction"))(&kernel, module, "busy_20000") != 0) {
        printf("0: 1\n");
        fflush(stdout);
        return;
    }
    make(&first, 0);
    for (int index = 0; index < KERNELS_AHEAD; index++)
        make(&ended[index], 0);
    for (long long number = 0; now_ms() - begun < FIRST_MS + milliseconds; number++) {
        void *end = ended[number % KERNELS_AHEAD];

        if (number >= KERNELS_AHEAD) {
            if (wait(end) != 0)
                break;
            if (counted_from >= 0 && number - KERNELS_AHEAD > counted_from && measure(&passed_ms, first, end) == 0)
                finished = number - KERNELS_AHEAD - counted_from;
        }
        if (launch(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) != 0 || record(end, NULL) != 0)
            break;
        if (counted_from < 0 && now_ms() - begun >= FIRST_MS && record(first, NULL) == 0)
            counted_from = number;
    }
    printf("%lld: %.0f\n", finished * KERNEL_MS, passed_ms);
    fflush(stdout);
}

static void take_memory(void *driver, int count, char **arguments)
{
    int is_managed = strcmp(arguments[0], "managed") == 0;

    for (int index = is_managed; index < count; index++) {
        if (strlen(arguments[index]) == 2 * HANDLE_BYTES)
            printf("0: %d\n", import(driver, arguments[index]));
        else
            printf("%s: %d\n", arguments[index], allocate(driver, strtoul(arguments[index], NULL, 10) << 20, is_managed));
        fflush(stdout);
    }
}

int take(int count, char **arguments)
{
    void *driver = count > 2 ? dlopen(arguments[1], RTLD_NOW) : NULL;

    if (!driver) {
        fprintf(stderr, "take: %s\n", count > 2 ? dlerror() : "needs a driver and what to take");
        return 1;
    }
    start(driver);
    if (strcmp(arguments[2], "busy") == 0 && count == 4)
        be_busy(driver, atoll(arguments[3]));
    else
        take_memory(driver, count - 2, arguments + 2);
    for (;;)
        pause();
}

#ifndef LIBRARY
int main(int count, char **arguments)
{
    return take(count, arguments);
}
#endif
