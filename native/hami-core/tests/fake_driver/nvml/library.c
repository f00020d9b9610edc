/*
 * libnvidia-ml.so.1 over the fake hardware: the library, and the lookup of devices.
 *
 * Implements NVML's documented binary interface. Its only state is a count of nvmlInit calls. What is not modelled returns
 * NVML_ERROR_NOT_SUPPORTED, as NVML does for hardware without a feature. A process whose driver was unloaded gets
 * NVML_ERROR_UNKNOWN from every call until it has called nvmlShutdown as often as nvmlInit.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "driver/driver.h"
#include "exports/entry.h"
#include "hardware/faults.h"
#include "nvml/fake.h"
#include "time/schedule.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialisations;
static struct visible visible;
static struct nvmlDevice_st handles[HW_DEVICES_MAX];

/* A device's handle has its physical index. Only those of devices that the container sees are valid. */
static void make_handles(void)
{
    for (int row = 0; row < HW_DEVICES_MAX; row++)
        handles[row].physical = row;
    for (int index = 0; index < visible.count; index++)
        handles[visible.device[index]].index = (unsigned int)index;
}

/* Open the driver, and see the devices. Another load of the driver may have other devices. */
static nvmlReturn_t open_driver(void)
{
    static bool was_open;
    enum driver_state state = driver_open("nvml");

    if (state != DRIVER_READY)
        return state == DRIVER_UNLOADED ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_ERROR_LIB_RM_VERSION_MISMATCH;
    if (!hw_open() || !schedule_open() || (was_open && !hw_read_again())) {
        driver_close();
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    was_open = true;
    visible_to_container(&visible);
    make_handles();
    return NVML_SUCCESS;
}

static nvmlReturn_t initialise(void)
{
    nvmlReturn_t result;

    pthread_mutex_lock(&mutex);
    result = initialisations ? NVML_SUCCESS : open_driver();
    if (result == NVML_SUCCESS)
        driver_count(++initialisations);
    pthread_mutex_unlock(&mutex);
    return result;
}

/* The functions that do not call the driver. */
static bool is_local(const char *symbol)
{
    return strncmp(symbol, "nvmlInit", 8) == 0 || strcmp(symbol, "nvmlShutdown") == 0;
}

const bool fake_entry_has_conditions = true;

bool fake_entry_answer(const struct fake_entry *entry, int *result)
{
    struct fault fault;

    if (strcmp(entry->symbol, "nvmlErrorString") == 0)
        return false;
    fault = fault_of_nvml(entry->symbol);
    if (fault.kind == FAULT_ERROR)
        *result = fault.error;
    else if (initialisations && !is_local(entry->symbol) && driver_is_gone())
        *result = NVML_ERROR_UNKNOWN;
    else
        return false;
    return true;
}

int fake_entry_missing(void)
{
    return initialisations ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

bool fake_nvml_is_open(void)
{
    return initialisations > 0;
}

static bool is_shown(int physical)
{
    if (!hw_exists(physical))
        return false;
    if (hw_device(physical)->parent >= 0)
        return visible_shows(physical);
    for (int index = 0; index < visible.count; index++)
        if (visible.device[index] == physical)
            return true;
    return false;
}

nvmlDevice_t fake_nvml_handle(int physical)
{
    return is_shown(physical) ? &handles[physical] : NULL;
}

nvmlReturn_t fake_nvml_fault(nvmlDevice_t device)
{
    struct fault fault = fault_of_device(device->physical, fake_entry_symbol);

    if (fault.kind == FAULT_LOST)
        return NVML_ERROR_GPU_IS_LOST;
    return fault.kind == FAULT_ERROR ? (nvmlReturn_t)fault.error : NVML_SUCCESS;
}

nvmlReturn_t fake_nvml_check(nvmlDevice_t device, const void *output)
{
    nvmlReturn_t result;

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (device < handles || device >= handles + HW_DEVICES_MAX || !is_shown(device->physical))
        return NVML_ERROR_INVALID_ARGUMENT;
    result = fake_nvml_fault(device);
    return result == NVML_SUCCESS && !output ? NVML_ERROR_INVALID_ARGUMENT : result;
}

nvmlReturn_t fake_nvml_text(char *text, unsigned int size, const char *value)
{
    if (!text)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (strlen(value) >= size)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    memcpy(text, value, strlen(value) + 1);
    return NVML_SUCCESS;
}

nvmlReturn_t fake_nvml_number(nvmlDevice_t device, unsigned int *output, unsigned int value)
{
    nvmlReturn_t result = fake_nvml_check(device, output);

    if (result == NVML_SUCCESS)
        *output = value;
    return result;
}

/* Library and system */

API(nvmlInit, void)
{
    return initialise();
}

API(nvmlInit_v2, void)
{
    return initialise();
}

API(nvmlInitWithFlags, unsigned int flags)
{
    (void)flags;
    return initialise();
}

API(nvmlShutdown, void)
{
    nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

    pthread_mutex_lock(&mutex);
    if (initialisations) {
        if (--initialisations)
            driver_count(initialisations);
        else
            driver_close();
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

API(nvmlSystemGetDriverVersion, char *version, unsigned int size)
{
    char text[64];

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    driver_version(text, sizeof(text));
    return fake_nvml_text(version, size, text);
}

API(nvmlSystemGetNVMLVersion, char *version, unsigned int size)
{
    char text[80];

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    snprintf(text, sizeof(text), "12.%s", driver_library_version());
    return fake_nvml_text(version, size, text);
}

API(nvmlSystemGetCudaDriverVersion, int *version)
{
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    *version = 12080;
    return NVML_SUCCESS;
}

API(nvmlSystemGetCudaDriverVersion_v2, int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

API(nvmlSystemGetProcessName, unsigned int pid, char *name, unsigned int size)
{
    char path[32], text[4096];
    FILE *file;
    size_t length;

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
    file = fopen(path, "re");
    if (!file)
        return NVML_ERROR_NOT_FOUND;
    length = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[length] = '\0';
    return fake_nvml_text(name, size, text);
}

/* Lookup of devices */

static nvmlReturn_t found(nvmlDevice_t handle, nvmlDevice_t *device)
{
    nvmlReturn_t result = fake_nvml_fault(handle);

    if (result == NVML_SUCCESS)
        *device = handle;
    return result;
}

API(nvmlDeviceGetCount_v2, unsigned int *count)
{
    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = (unsigned int)visible.count;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetCount, unsigned int *count)
{
    return nvmlDeviceGetCount_v2(count);
}

API(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *device)
{
    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!device || index >= (unsigned int)visible.count)
        return NVML_ERROR_INVALID_ARGUMENT;
    return found(&handles[visible.device[index]], device);
}

API(nvmlDeviceGetHandleByIndex, unsigned int index, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByIndex_v2(index, device);
}

API(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device)
{
    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!uuid || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int row = 0; row < hw_device_count(); row++)
        if (strcmp(hw_device(row)->uuid, uuid) == 0 && is_shown(row))
            return found(&handles[row], device);
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetHandleBySerial, const char *serial, nvmlDevice_t *device)
{
    char text[16];

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int index = 0; index < visible.count; index++) {
        fake_nvml_serial(text, sizeof(text), &handles[visible.device[index]]);
        if (strcmp(text, serial) == 0)
            return found(&handles[visible.device[index]], device);
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetHandleByPciBusId_v2, const char *bus_id, nvmlDevice_t *device)
{
    unsigned int domain, bus, slot;

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!bus_id || !device || sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int index = 0; index < visible.count; index++) {
        const struct hw_device *candidate = hw_device(visible.device[index]);

        if (candidate->pci_domain == domain && candidate->pci_bus == bus && candidate->pci_device == slot)
            return found(&handles[visible.device[index]], device);
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetHandleByPciBusId, const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}
