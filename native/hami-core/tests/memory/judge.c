#include "judge.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hami/cuda_abi.h"
#include "hami/nvml_abi.h"
#include "hami/region.h"

static int question[2], answer[2];
static pid_t judge;

void fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(stderr);
    _exit(1);
}

double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static struct hami_region *map_region(void)
{
    int file = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDONLY);
    void *address = mmap(NULL, sizeof(struct hami_region), PROT_READ, MAP_SHARED, file, 0);

    if (address == MAP_FAILED)
        fail("the judge cannot map the region");
    close(file);
    return address;
}

typedef uint64_t ask_truth(int device, uint64_t pid);
typedef uint64_t ask_peak(int device);

static struct verdict look(const struct hami_region *region, int device, ask_truth *truth, ask_peak *peak)
{
    struct verdict verdict = {.truth = truth(device, 0), .limit = region->limit[device], .peak = peak(device)};

    for (int index = 0; index < region->proc_num; index++) {
        if (!region->procs[index].pid)
            continue;
        verdict.accounted += region->procs[index].used[device].total;
        verdict.live_slots++;
    }
    verdict.live_slots--; /* the judge's own */
    return verdict;
}

static void *symbol(void *library, const char *name)
{
    void *found = library ? dlsym(library, name) : NULL;

    if (!found)
        fail("the judge does not find %s", name);
    return found;
}

static void sit(void)
{
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW), *nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    __typeof__(&cuInit) init = (__typeof__(&cuInit))symbol(cuda, "cuInit");
    __typeof__(&nvmlInit_v2) init_nvml = (__typeof__(&nvmlInit_v2))symbol(nvml, "nvmlInit_v2");
    __typeof__(&nvmlDeviceGetHandleByIndex_v2) get = (__typeof__(get))symbol(nvml, "nvmlDeviceGetHandleByIndex_v2");
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v2) list =
        (__typeof__(list))symbol(nvml, "nvmlDeviceGetComputeRunningProcesses_v2");
    ask_truth *truth = (ask_truth *)symbol(cuda, "fake_truth_memory");
    ask_peak *peak = (ask_peak *)symbol(cuda, "fake_truth_memory_peak");
    const struct hami_region *region = NULL;
    nvmlDevice_t handles[DEVICES];
    int device;

    if (init(0) != CUDA_SUCCESS || init_nvml() != NVML_SUCCESS)
        fail("the judge cannot start the driver");
    for (device = 0; device < DEVICES; device++)
        get((unsigned int)device, &handles[device]);
    region = map_region();
    while (read(question[0], &device, sizeof(device)) == sizeof(device)) {
        unsigned int count = 0;
        struct verdict verdict;

        list(handles[device], &count, NULL); /* sweeps */
        verdict = look(region, device, truth, peak);
        if (write(answer[1], &verdict, sizeof(verdict)) != sizeof(verdict))
            break;
    }
}

void judge_start(void)
{
    if (pipe2(question, O_CLOEXEC) != 0 || pipe2(answer, O_CLOEXEC) != 0)
        fail("no pipe for the judge");
    judge = fork();
    if (judge == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(question[1]);
        sit();
        exit(0);
    }
    close(question[0]);
    close(answer[1]);
}

struct verdict judge_ask(int device)
{
    struct verdict verdict;

    if (write(question[1], &device, sizeof(device)) != sizeof(device) ||
        read(answer[0], &verdict, sizeof(verdict)) != sizeof(verdict))
        fail("the judge is gone");
    return verdict;
}

void judge_end(void)
{
    close(question[1]);
    waitpid(judge, NULL, 0);
}
