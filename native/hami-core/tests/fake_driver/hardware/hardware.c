/*
 * The devices, and the errors (XIDs) that they report.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "driver/variables.h"
#include "hardware/state.h"

static struct hw_device devices[HW_CONFIGURED_MAX];
static int device_count;
static bool is_open;
static uint64_t context_bytes;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

uint64_t hw_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Find the GPU of a MIG instance among the rows before it. */
static bool join(struct hw_device *device)
{
    bool is_instance = strncmp(device->uuid, "MIG-", 4) == 0;

    device->parent = -1;
    for (int row = 0; is_instance && row < device_count; row++) {
        if (strcmp(devices[row].pci_bus_id, device->pci_bus_id) != 0)
            continue;
        if (devices[row].parent < 0)
            device->parent = row;
        device->instance++;
    }
    return !is_instance || device->parent >= 0;
}

static bool parse_device(char *row, struct hw_device *device)
{
    char *fields[5];
    char *rest = row;

    for (int index = 0; index < 5; index++) {
        fields[index] = strsep(&rest, ",");
        if (!fields[index])
            return false;
    }
    memset(device, 0, sizeof(*device));
    snprintf(device->uuid, sizeof(device->uuid), "%s", fields[0]);
    snprintf(device->name, sizeof(device->name), "%s", fields[1]);
    device->memory_bytes = strtoull(fields[2], NULL, 10) * HW_MIB;
    device->numa_node = (int)strtol(fields[3], NULL, 10);
    if (sscanf(fields[4], "%x:%x:%x", &device->pci_domain, &device->pci_bus, &device->pci_device) != 3)
        return false;
    snprintf(device->pci_bus_id, sizeof(device->pci_bus_id), "%08X:%02X:%02X.0", device->pci_domain, device->pci_bus,
             device->pci_device);
    return device->memory_bytes > 0 && join(device);
}

static void clear_devices(void)
{
    device_count = 0;
    for (int row = 0; row < HW_CONFIGURED_MAX; row++)
        devices[row] = (struct hw_device){.parent = -1};
}

static bool read_devices(const char *folder)
{
    char path[4096], row[512];
    FILE *file;

    clear_devices();
    snprintf(path, sizeof(path), "%s/devices.csv", folder);
    file = fopen(path, "re");
    if (!file) {
        fprintf(stderr, "fake driver: %s: %s\n", path, strerror(errno));
        return false;
    }
    if (!fgets(row, sizeof(row), file) || strncmp(row, "uuid,", 5) != 0) {
        fprintf(stderr, "fake driver: %s: first line is not the header uuid,name,memory_mib,numa_node,pci_bus_id\n", path);
        fclose(file);
        return false;
    }
    for (int line = 2; device_count < HW_CONFIGURED_MAX && fgets(row, sizeof(row), file); line++) {
        row[strcspn(row, "\r\n")] = '\0';
        if (row[0] == '\0')
            continue;
        if (!parse_device(row, &devices[device_count])) {
            fprintf(stderr, "fake driver: %s:%d: not uuid,name,memory_mib,numa_node,pci_bus_id\n", path, line);
            fclose(file);
            return false;
        }
        device_count++;
    }
    fclose(file);
    return true;
}

static void default_device(void)
{
    char row[] = "GPU-00000000-0000-4000-8000-000000000000,NVIDIA Fake GPU,16384,0,0000:01:00.0";

    clear_devices();
    device_count = parse_device(row, &devices[0]) ? 1 : 0;
}

static void open_hardware(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");
    const char *context = variable("FAKE_DRIVER_CONTEXT_MIB");
    bool is_shared = folder && folder[0];

    context_bytes = (context ? strtoull(context, NULL, 10) : 128) * HW_MIB;
    if (!is_shared)
        default_device();
    else if (!read_devices(folder))
        return;
    is_open = hw_state_open(is_shared ? folder : NULL);
}

bool hw_read_again(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");

    if (!folder || !folder[0])
        return true;
    return read_devices(folder);
}

bool hw_open(void)
{
    pthread_once(&opened, open_hardware);
    return is_open;
}

int hw_device_count(void)
{
    return hw_state && hw_state->has_instances ? HW_DEVICES_MAX : device_count;
}

const struct hw_device *hw_device(int device)
{
    return device < HW_CONFIGURED_MAX ? &devices[device] : &hw_state->instances[device - HW_CONFIGURED_MAX].device;
}

bool hw_exists(int device)
{
    return hw_device(device)->uuid[0] != '\0';
}

bool hw_is_partitioned(int device)
{
    for (int row = 0; row < device_count; row++)
        if (devices[row].parent == device)
            return true;
    return mig_is_on(device);
}

uint64_t hw_context_bytes(void)
{
    return context_bytes;
}

bool hw_is_root(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");
    struct stat status;

    return geteuid() == 0 || (folder && stat(folder, &status) == 0 && status.st_uid == geteuid());
}

static FILE *open_reports(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");
    char path[4096];

    if (!folder || !folder[0])
        return NULL;
    snprintf(path, sizeof(path), "%s/xid", folder);
    return fopen(path, "re");
}

long hw_report_end(void)
{
    FILE *file = open_reports();
    long end = 0;

    if (file) {
        if (fseek(file, 0, SEEK_END) == 0)
            end = ftell(file);
        fclose(file);
    }
    return end;
}

/* A line is `<uuid> <number>`, `<uuid> single-bit-ecc` or `<uuid> double-bit-ecc`. */
static bool parse_report(const char *line, struct hw_report *report)
{
    char uuid[64], what[64];

    if (sscanf(line, "%63s %63s", uuid, what) != 2)
        return false;
    *report = (struct hw_report){.device = -1, .xid = (unsigned int)strtoul(what, NULL, 10)};
    if (strcmp(what, "single-bit-ecc") == 0)
        report->kind = HW_SINGLE_BIT_ECC;
    if (strcmp(what, "double-bit-ecc") == 0)
        report->kind = HW_DOUBLE_BIT_ECC;
    for (int index = 0; index < hw_device_count(); index++)
        if (strcmp(hw_device(index)->uuid, uuid) == 0)
            report->device = index;
    return report->device >= 0;
}

bool hw_next_report(long *offset, struct hw_report *report)
{
    FILE *file = open_reports();
    char line[256];
    bool is_found = false;

    if (!file)
        return false;
    fseek(file, *offset, SEEK_SET);
    while (!is_found && fgets(line, sizeof(line), file) && strchr(line, '\n')) {
        *offset = ftell(file);
        is_found = parse_report(line, report);
    }
    fclose(file);
    return is_found;
}
