#include "hardware/visible.h"

#include <ctype.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "driver/variables.h"

enum { PREFIX_MIN = 5 };

/*
 * How many minor numbers the driver reserves for the instances of a GPU.
 * Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
 */
enum { GPU_INSTANCES = 15, COMPUTE_INSTANCES = 8 };

static char *trimmed(char *entry)
{
    while (isspace((unsigned char)*entry))
        entry++;
    for (size_t length = strlen(entry); length && isspace((unsigned char)entry[length - 1]); length--)
        entry[length - 1] = '\0';
    return entry;
}

/* Return the number that an entry is, or -1. */
static int index_in(const char *entry)
{
    char *end;
    long index = isdigit((unsigned char)entry[0]) ? strtol(entry, &end, 10) : -1;

    return index >= 0 && *end == '\0' && index < HW_DEVICES_MAX ? (int)index : -1;
}

static int row_of_uuid(const char *uuid)
{
    for (int row = 0; row < hw_device_count(); row++)
        if (strcmp(hw_device(row)->uuid, uuid) == 0)
            return row;
    return -1;
}

/* Return the only one of these rows whose UUID begins with the entry. */
static int row_of_prefix(const int *rows, int count, const char *prefix)
{
    int found = -1;

    if (strlen(prefix) < PREFIX_MIN)
        return -1;
    for (int index = 0; index < count; index++) {
        if (strncmp(hw_device(rows[index])->uuid, prefix, strlen(prefix)) != 0)
            continue;
        if (found >= 0)
            return -1;
        found = rows[index];
    }
    return found;
}

/* Return the GPU with an index among the node's, or -1. */
static int row_of_index(int index)
{
    for (int row = 0, gpus = 0; row < hw_device_count(); row++)
        if (hw_exists(row) && hw_device(row)->parent < 0 && gpus++ == index)
            return row;
    return -1;
}

static void add_row(struct visible *visible, int row)
{
    if (hw_device(row)->parent < 0)
        visible->device[visible->count++] = row;
    else
        visible->instance[visible->instance_count++] = row;
}

static bool has_capability(const struct __user_cap_data_struct *sets, int capability)
{
    return sets[CAP_TO_INDEX(capability)].effective & CAP_TO_MASK(capability);
}

/*
 * Whether this is root of a privileged container, which may use every device of the kernel. The driver's libraries make
 * the device files that they need and do not find. Other containers have at most one of the two capabilities.
 * Source: the manual of nvidia-modprobe.
 */
static bool is_privileged(void)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &header, sets) != 0)
        return false;
    return has_capability(sets, CAP_MKNOD) && has_capability(sets, CAP_SYS_ADMIN);
}

static bool has_file(const char *kind, int minor)
{
    const char *folder = variable("FAKE_DRIVER_DEV");
    char path[4096];

    if (!folder && is_privileged())
        return true;
    snprintf(path, sizeof(path), "%s/%s%d", folder ? folder : "/dev", kind, minor);
    return access(path, F_OK) == 0;
}

/* Whether the container has the device files of a GPU, or those of an instance: its GPU's and two capabilities. */
static bool has_nodes(int row)
{
    const struct hw_device *device = hw_device(row);
    int gpu_instance = 3 + (device->parent * GPU_INSTANCES + device->instance) * (1 + COMPUTE_INSTANCES);

    if (device->parent < 0)
        return has_file("nvidia", row);
    return has_file("nvidia", device->parent) && has_file("nvidia-caps/nvidia-cap", gpu_instance) &&
           has_file("nvidia-caps/nvidia-cap", gpu_instance + 1 + device->compute);
}

void visible_to_container(struct visible *visible)
{
    const char *setting = getenv("NVIDIA_VISIBLE_DEVICES");
    bool is_everything = !setting || strcmp(setting, "all") == 0;
    bool is_void = setting && strcmp(setting, "void") == 0;
    bool is_listed[HW_DEVICES_MAX] = {false};
    char list[4096];
    char *rest = list, *entry;

    memset(visible, 0, sizeof(*visible));
    snprintf(list, sizeof(list), "%s", is_everything ? "" : setting);
    while ((entry = strsep(&rest, ",")) != NULL) {
        const char *name = trimmed(entry);
        int row = index_in(name) >= 0 ? row_of_index(index_in(name)) : row_of_uuid(name);

        for (int other = 0; row >= 0 && other < hw_device_count(); other++)
            if (other == row || hw_device(other)->parent == row || hw_device(row)->parent == other)
                is_listed[other] = true;
    }
    for (int row = 0; row < hw_device_count(); row++)
        if (hw_exists(row) && (is_everything || is_listed[row] || (is_void && has_nodes(row))))
            add_row(visible, row);
}

bool visible_shows(int row)
{
    struct visible visible;
    const int *rows;
    int count;

    visible_to_container(&visible);
    rows = hw_device(row)->parent < 0 ? visible.device : visible.instance;
    count = hw_device(row)->parent < 0 ? visible.count : visible.instance_count;
    for (int index = 0; index < count; index++)
        if (rows[index] == row)
            return true;
    return false;
}

/* Return the device that CUDA uses for a GPU: itself, or in MIG mode its first instance in the container; -1 if there is none. */
static int cuda_device(const struct visible *container, int gpu)
{
    for (int index = 0; index < container->instance_count; index++)
        if (hw_device(container->instance[index])->parent == gpu)
            return container->instance[index];
    return hw_is_partitioned(gpu) ? -1 : gpu;
}

/* MIG-<GPU UUID>/<GPU instance>/<compute instance> */
static int row_of_path(const struct visible *container, const char *path)
{
    const char *instance = strchr(path, '/');
    size_t length = instance ? (size_t)(instance - path) : 0;
    int number, compute;
    char end;

    if (!instance || sscanf(instance, "/%d/%d%c", &number, &compute, &end) != 2)
        return -1;
    for (int index = 0; index < container->instance_count; index++) {
        const struct hw_device *device = hw_device(container->instance[index]);
        const char *uuid = hw_device(device->parent)->uuid;

        if (device->instance == number && device->compute == compute && strlen(uuid) == length && strncmp(uuid, path, length) == 0)
            return container->instance[index];
    }
    return -1;
}

static int row_of_entry(const struct visible *container, const char *entry)
{
    int index = index_in(entry);
    int row;

    if (strncmp(entry, "MIG-GPU-", 8) == 0)
        return row_of_path(container, entry + 4);
    if (strncmp(entry, "MIG-", 4) == 0)
        return row_of_prefix(container->instance, container->instance_count, entry);
    row = index >= 0 ? (index < container->count ? container->device[index] : -1)
                     : row_of_prefix(container->device, container->count, entry);
    return row >= 0 ? cuda_device(container, row) : -1;
}

static void list_devices(struct visible *visible, const struct visible *container, const char *setting)
{
    bool is_listed[HW_DEVICES_MAX] = {false};
    char list[4096];
    char *rest = list, *entry;

    snprintf(list, sizeof(list), "%s", setting);
    while ((entry = strsep(&rest, ",")) != NULL) {
        int row = row_of_entry(container, trimmed(entry));

        if (row < 0)
            return;
        if (is_listed[row]) {
            visible->count = 0;
            return;
        }
        is_listed[row] = true;
        visible->device[visible->count++] = row;
    }
}

void visible_to_cuda(struct visible *visible)
{
    const char *setting = getenv("CUDA_VISIBLE_DEVICES");
    struct visible container;

    visible_to_container(&container);
    memset(visible, 0, sizeof(*visible));
    if (setting)
        list_devices(visible, &container, setting);
    for (int index = 0; !setting && index < container.count; index++)
        if (cuda_device(&container, container.device[index]) >= 0)
            visible->device[visible->count++] = cuda_device(&container, container.device[index]);
    for (int index = 0; index < visible->count; index++) {
        if (hw_device(visible->device[index])->parent >= 0) {
            visible->device[0] = visible->device[index];
            visible->count = 1;
        }
    }
}
