/*
 * A CUDA program of the driver's interface alone, for a real driver and for the fake one.
 *
 * Usage: cuda plain | pooled    take memory until it is refused, say how much that was, and keep it until a line comes
 *        cuda time SECONDS      run kernels without end, for a start of 5 s and then for so long, and say how many ended
 *
 * What it says, also of the end of the start, is a line of JSON. The kernel is text in NVIDIA's intermediate language, which takes its
 * name's microseconds by the device's own clock; the fake driver goes by the name.
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MIB ((size_t)1 << 20)
#define NAME_OF(symbol) NAME_AS_WRITTEN(symbol)
#define NAME_AS_WRITTEN(symbol) #symbol

/* Find the driver's function, in the version of the header. */
#define CALL(symbol, ...) check(((__typeof__(&symbol))find(NAME_OF(symbol)))(__VA_ARGS__), NAME_OF(symbol))
#define TRY(symbol, ...) ((__typeof__(&symbol))find(NAME_OF(symbol)))(__VA_ARGS__)

enum { PIECES_MAX = 1 << 16, PIECE_MIB = 64, QUEUED = 16, START_SECONDS = 5 };

static const char kernel[] = ".version 7.0\n"
                             ".target sm_50\n"
                             ".address_size 64\n"
                             ".visible .entry busy_2000()\n"
                             "{\n"
                             "    .reg .pred %is_early;\n"
                             "    .reg .u64 %begun, %now;\n"
                             "    mov.u64 %begun, %globaltimer;\n"
                             "again:\n"
                             "    mov.u64 %now, %globaltimer;\n"
                             "    sub.u64 %now, %now, %begun;\n"
                             "    setp.lt.u64 %is_early, %now, 2000000;\n"
                             "    @%is_early bra again;\n"
                             "    ret;\n"
                             "}\n";

static void *find(const char *symbol)
{
    static void *driver;
    void *function;

    if (!driver)
        driver = dlopen("libcuda.so.1", RTLD_NOW);
    function = driver ? dlsym(driver, symbol) : NULL;
    if (!function) {
        fprintf(stderr, "%s: %s\n", symbol, dlerror());
        exit(1);
    }
    return function;
}

static void check(CUresult result, const char *symbol)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "%s returns %d\n", symbol, (int)result);
    exit(1);
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static CUresult take(CUdeviceptr *pointer, int is_pooled)
{
    CUresult result = is_pooled ? TRY(cuMemAllocAsync, pointer, PIECE_MIB * MIB, NULL) : TRY(cuMemAlloc, pointer, PIECE_MIB * MIB);

    if (result == CUDA_SUCCESS && is_pooled)
        CALL(cuStreamSynchronize, NULL);
    return result;
}

static void fill(int is_pooled)
{
    size_t available, total, taken = 0;
    CUresult result = CUDA_SUCCESS;
    CUdeviceptr pointer;

    CALL(cuMemGetInfo, &available, &total);
    while (taken < PIECES_MAX && (result = take(&pointer, is_pooled)) == CUDA_SUCCESS)
        taken++;
    printf("{\"total_mib\": %zu, \"free_mib\": %zu, \"held_mib\": %zu, \"refusal\": \"%s\"}\n", total / MIB, available / MIB,
           taken * PIECE_MIB, result == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "another error");
    fflush(stdout);
    getchar();
}

static void launch_until(CUfunction function, double end, unsigned long *done)
{
    for (*done = 0; seconds_now() < end; *done += QUEUED) {
        for (int index = 0; index < QUEUED; index++)
            CALL(cuLaunchKernel, function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        CALL(cuCtxSynchronize);
    }
}

static void run(double seconds)
{
    unsigned long done;
    CUfunction function;
    CUmodule module;
    double began;

    CALL(cuModuleLoadData, &module, kernel);
    CALL(cuModuleGetFunction, &function, module, "busy_2000");
    launch_until(function, seconds_now() + START_SECONDS, &done);
    printf("{\"is_begun\": true}\n");
    fflush(stdout);
    began = seconds_now();
    launch_until(function, began + seconds, &done);
    printf("{\"done\": %lu, \"seconds\": %.3f}\n", done, seconds_now() - began);
}

int main(int count, char **arguments)
{
    CUcontext context;

    CALL(cuInit, 0);
    CALL(cuDevicePrimaryCtxRetain, &context, 0);
    CALL(cuCtxSetCurrent, context);
    if (count == 3 && strcmp(arguments[1], "time") == 0)
        run(strtod(arguments[2], NULL));
    else if (count == 2 && (strcmp(arguments[1], "plain") == 0 || strcmp(arguments[1], "pooled") == 0))
        fill(strcmp(arguments[1], "pooled") == 0);
    else
        return 2;
    return 0;
}
