/*
 * nvidia-cuda-mps-server: the process of an MPS server, which holds the driver while it runs.
 *
 * Its arguments are the devices that it may use, as UUIDs, beginnings of UUIDs, or ordinals; without arguments, all. The control
 * daemon starts it and owns its clients. On stdout it says `ready <uuid>...`, and answers each line on stdin with the same line and
 * devices: for `work <client>` those on which the client has work, for `fault <client>` those that have a fault because the client, which
 * is dead, had work there. `hold <uuid>` makes the server's context on a device, once; it answers with a CUDA error if that fails. It
 * ends with its stdin.
 * `--version` prints the driver's version.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/conditions.h"
#include "driver/driver.h"
#include "hardware/compute_mode.h"
#include "hardware/hardware.h"
#include "time/schedule.h"

/* What the server has of a device. */
#define CONTEXT_MIB "30"

enum { OUT_OF_MEMORY = 2, DEVICE_UNAVAILABLE = 46 };

static bool is_allowed[HW_DEVICES_MAX], is_held[HW_DEVICES_MAX];

/* Return the device that an argument names, or -1. */
static int find(const char *text)
{
    int ordinal = 0;

    for (int device = 0; device < hw_device_count(); device++) {
        if (!hw_exists(device))
            continue;
        if (isdigit((unsigned char)text[0]) ? ordinal == atoi(text) : strncmp(hw_device(device)->uuid, text, strlen(text)) == 0)
            return device;
        ordinal++;
    }
    return -1;
}

static bool open_devices(int count, char **texts)
{
    bool is_any = false;

    if (driver_open("cuda") != DRIVER_READY || !hw_open() || !schedule_open())
        return false;
    for (int device = 0; device < hw_device_count(); device++)
        is_allowed[device] = !count && hw_exists(device);
    for (int index = 0; index < count; index++) {
        if (find(texts[index]) < 0)
            return false;
        is_allowed[find(texts[index])] = true;
    }
    for (int device = 0; device < hw_device_count(); device++)
        is_any |= is_allowed[device];
    return is_any;
}

/* Make the context on a device. Returns 0 or a CUDA error. */
static int hold(int device)
{
    if (device < 0 || is_held[device])
        return 0;
    if (!hw_compute_is_open(device))
        return DEVICE_UNAVAILABLE;
    is_held[device] = hw_context_take(device);
    return is_held[device] ? 0 : OUT_OF_MEMORY;
}

static void answer_hold(const char *uuid)
{
    int error = hold(find(uuid));

    printf("hold %s", uuid);
    if (error)
        printf(" %d", error);
    printf("\n");
}

static void answer(const char *question, uint64_t client)
{
    bool is_fault = strcmp(question, "fault") == 0;
    bool is_harmless = is_fault && conditions_find("driver", "mps-survives-kills", NULL);

    printf("%s %llu", question, (unsigned long long)client);
    for (int device = 0; device < hw_device_count(); device++)
        if (hw_exists(device) && !is_harmless && schedule_client_has_work(device, client, is_fault))
            printf(" %s", hw_device(device)->uuid);
    printf("\n");
}

int main(int count, char **texts)
{
    char line[128], question[16], about[64], version[64];

    setenv("FAKE_DRIVER_CONTEXT_MIB", CONTEXT_MIB, 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 2 && strcmp(texts[1], "--version") == 0) {
        driver_version(version, sizeof(version));
        printf("%s\n", version);
        return 0;
    }
    if (!open_devices(count - 1, texts + 1)) {
        fprintf(stderr, "Failed to start: no CUDA-capable device is detected\n");
        return 1;
    }
    printf("ready");
    for (int device = 0; device < hw_device_count(); device++)
        if (is_allowed[device])
            printf(" %s", hw_device(device)->uuid);
    printf("\n");
    while (fgets(line, sizeof(line), stdin) && !driver_is_gone())
        if (sscanf(line, "%15s %63s", question, about) == 2) {
            if (strcmp(question, "hold") == 0)
                answer_hold(about);
            else
                answer(question, strtoull(about, NULL, 10));
        }
    return 0;
}
