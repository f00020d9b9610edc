/*
 * NVML of a driver that hangs: the function named by HANGING_NVML does not return; `load` hangs while the library is loaded.
 *
 * With HANGING_NVML_LEAVES=1 a process that has all its caller's files outlives the caller, as one does that the kernel cannot kill.
 * With HANGING_NVML_DIES=1 the function ends the process instead. Functions that do not hang succeed, or fail if HANGING_NVML is
 * nvmlErrorString, which then is asked for the reason.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For how long the process lives that is left. */
#define LEFT_SECONDS 30

static bool is_set(const char *name)
{
    const char *value = getenv(name);

    return value && strcmp(value, "1") == 0;
}

static void meet(const char *function)
{
    const char *hanging = getenv("HANGING_NVML");
    bool is_left;

    if (!hanging || strcmp(hanging, function) != 0)
        return;
    if (is_set("HANGING_NVML_DIES"))
        kill(getpid(), SIGKILL);
    is_left = is_set("HANGING_NVML_LEAVES") && fork() == 0;
    if (is_left) {
        setsid();
        sleep(LEFT_SECONDS);
        _exit(0);
    }
    for (;;)
        pause();
}

static int answer(const char *function)
{
    const char *hanging = getenv("HANGING_NVML");

    meet(function);
    return hanging && strcmp(hanging, "nvmlErrorString") == 0 ? 1 : 0;
}

__attribute__((constructor)) static void load(void)
{
    meet("load");
}

__attribute__((visibility("default"))) int nvmlInit_v2(void);
int nvmlInit_v2(void)
{
    return answer("nvmlInit_v2");
}

__attribute__((visibility("default"))) int nvmlShutdown(void);
int nvmlShutdown(void)
{
    return answer("nvmlShutdown");
}

__attribute__((visibility("default"))) const char *nvmlErrorString(int result);
const char *nvmlErrorString(int result)
{
    (void)result;
    meet("nvmlErrorString");
    return "failed";
}

__attribute__((visibility("default"))) int nvmlDeviceGetHandleByUUID(const char *uuid, void **device);
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device)
{
    *device = (void *)uuid;
    return answer("nvmlDeviceGetHandleByUUID");
}

__attribute__((visibility("default"))) int nvmlDeviceSetMemoryLimits_v1(void *device, void *limits);
int nvmlDeviceSetMemoryLimits_v1(void *device, void *limits)
{
    (void)device;
    (void)limits;
    return answer("nvmlDeviceSetMemoryLimits_v1");
}
