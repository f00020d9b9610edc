#include "hardware/readings.h"

#include <string.h>

#include "driver/conditions.h"
#include "hardware/hardware.h"

int64_t reading(int device, const char *name, int64_t otherwise)
{
    int gpu = hw_device(device)->parent >= 0 ? hw_device(device)->parent : device;

    return conditions_version() ? conditions_number(hw_device(gpu)->uuid, name, otherwise) : otherwise;
}

/* Source: https://developer.nvidia.com/cuda-gpus, compute capability below 8.0. */
bool reading_is_of_old_device(int device)
{
    static const char *const names[] = {"T4", "V100", "P100", "P40", "P4", "M60", "K80", "RTX 20", "RTX 6000", "RTX 8000"};

    for (size_t index = 0; index < sizeof(names) / sizeof(names[0]); index++)
        if (strstr(hw_device(device)->name, names[index]) && !strstr(hw_device(device)->name, "Ada"))
            return true;
    return false;
}
