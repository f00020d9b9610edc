/*
 * Limits files: any content is read or refused, and each device and variable that was read can be asked for.
 */
#include "fuzz.h"

#include <string.h>

#include "limits_file.h"

static void check_devices(const struct hami_limits_file *file)
{
    PROMISE(file->devices >= 0 && file->devices <= HAMI_DEVICES_MAX);
    for (int index = 0; index < file->devices; index++) {
        const struct hami_limits_device *device = &file->device[index];

        PROMISE(memchr(device->uuid, '\0', sizeof(device->uuid)) && device->uuid[0]);
        PROMISE(device->core_percent >= 1 && device->core_percent <= 100);
        PROMISE(hami_limits_of(file, device->uuid) == device);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hami_limits_file file;
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/fd/%d", file_of(data, size));
    hami_limits_read(path, &file);
    PROMISE(file.state != HAMI_LIMITS_MISSING);
    PROMISE(file.state == HAMI_LIMITS_READ || (!file.devices && file.problem[0]));
    check_devices(&file);
    hami_limits_setting(&file, "CUDA_DEVICE_MEMORY_SHARED_CACHE");
    PROMISE(file.state == HAMI_LIMITS_READ || !hami_limits_setting(&file, "A"));
    PROMISE(!hami_limits_is_replaced(path, &file.identity));
    return 0;
}
