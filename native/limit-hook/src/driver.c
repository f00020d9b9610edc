#include "driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "message.h"
#include "patience.h"

#define LIBRARY "libnvidia-ml.so.1"

/* Source: NVML API reference, nvmlDeviceSetMemoryLimits_v1, and nvidia-ml-py 13.615. */
enum { NVML_SUCCESS = 0 };
typedef void *nvmlDevice_t;
typedef struct {
    const char *nameSpace;
    unsigned long long softLimit, hardLimit;
} nvmlSetMemoryLimits_v1_t;

struct nvml {
    const char *path;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int result);
    int (*handle_by_uuid)(const char *uuid, nvmlDevice_t *device);
    int (*set_limits)(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits);
};

static const char *const folders[] = {
    "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu",
};

/* Find the library below the root. The linker knows that of the host. */
static bool find(const char *root, char path[PATH_MAX])
{
    for (size_t index = 0; index < sizeof(folders) / sizeof(folders[0]); index++)
        if (snprintf(path, PATH_MAX, "%s/%s/" LIBRARY, root, folders[index]) < PATH_MAX && access(path, R_OK) == 0)
            return true;
    strcpy(path, LIBRARY);
    return root[strspn(root, "/")] == '\0';
}

static bool look_up(void *library, struct nvml *nvml)
{
    struct {
        const char *name;
        void *place;
    } functions[] = {
        {"nvmlInit_v2", &nvml->init},
        {"nvmlShutdown", &nvml->shutdown},
        {"nvmlErrorString", &nvml->error_string},
        {"nvmlDeviceGetHandleByUUID", &nvml->handle_by_uuid},
        {"nvmlDeviceSetMemoryLimits_v1", &nvml->set_limits},
    };

    for (size_t index = 0; index < sizeof(functions) / sizeof(functions[0]); index++) {
        void *found = dlsym(library, functions[index].name);

        if (!found)
            return hami_fail("%s has no %s: memory limits need driver r615 or later", nvml->path, functions[index].name);
        memcpy(functions[index].place, &found, sizeof(found));
    }
    return true;
}

static const char *reason(const struct nvml *nvml, int result)
{
    hami_patience_step("nvmlErrorString");
    return nvml->error_string(result);
}

static bool limit(const struct nvml *nvml, const char *folder, const struct hami_limit *wanted)
{
    /* A soft limit would be added to those of the cgroups above, and stay there when the container is gone. */
    nvmlSetMemoryLimits_v1_t limits = {folder, 0, wanted->bytes};
    nvmlDevice_t device;
    int result;

    hami_patience_step("nvmlDeviceGetHandleByUUID");
    result = nvml->handle_by_uuid(wanted->uuid, &device);
    if (result != NVML_SUCCESS)
        return hami_fail("device %s: %s; it must be one of the driver of %s", wanted->uuid, reason(nvml, result), nvml->path);
    hami_patience_step("nvmlDeviceSetMemoryLimits_v1");
    result = nvml->set_limits(device, &limits);
    if (result != NVML_SUCCESS)
        return hami_fail(
            "device %s, cgroup %s: a limit of %llu bytes cannot be set: %s; limits need driver r615 or later, cgroup v2, "
            "a GPU without MIG, and no more bytes than the device has",
            wanted->uuid, folder, wanted->bytes, reason(nvml, result));
    return true;
}

bool hami_driver_limit(const char *driver_root, const char *folder, const struct hami_limit *limits, int count)
{
    char path[PATH_MAX];
    struct nvml nvml = {.path = path};
    bool is_limited = true;
    void *library;
    int result;

    if (!find(driver_root, path))
        return hami_fail("--driver-root %s has no " LIBRARY "; the driver must be installed there", driver_root);
    hami_patience_step("loading " LIBRARY);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return hami_fail("%s", dlerror());
    if (!look_up(library, &nvml))
        return false;
    hami_patience_step("nvmlInit_v2");
    result = nvml.init();
    if (result != NVML_SUCCESS)
        return hami_fail("%s: nvmlInit_v2: %s; the driver must be loaded", path, reason(&nvml, result));
    for (int index = 0; is_limited && index < count; index++)
        is_limited = limit(&nvml, folder, &limits[index]);
    hami_patience_step("nvmlShutdown");
    nvml.shutdown();
    return is_limited;
}
