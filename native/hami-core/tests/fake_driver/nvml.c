/*
 * libnvidia-ml.so.1 over the fake hardware: the library, its devices and their memory.
 *
 * Speaks NVML's documented binary interface and holds no state of its own but a count of nvmlInit calls. What is not modelled
 * answers NVML_ERROR_NOT_SUPPORTED, as NVML does for hardware without the feature.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "entry.h"
#include "nvml_fake.h"
#include "schedule.h"

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlBAR1Memory_t;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int initialisations;
static struct visible visible;
static struct nvmlDevice_st handles[HW_DEVICES_MAX];

static void make_handles(void)
{
    for (int index = 0; index < visible.count; index++)
        handles[index] = (struct nvmlDevice_st){.physical = visible.device[index], .index = (unsigned int)index};
    for (int index = 0; index < visible.instance_count; index++) {
        struct nvmlDevice_st *handle = &handles[visible.count + index];
        bool is_next = index && hw_device(visible.instance[index])->parent == hw_device(visible.instance[index - 1])->parent;

        *handle = (struct nvmlDevice_st){.physical = visible.instance[index], .index = is_next ? handle[-1].index + 1 : 0};
    }
}

static int handle_count(void)
{
    return visible.count + visible.instance_count;
}

static nvmlReturn_t initialise(void)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (!hw_open() || !schedule_open()) {
        result = NVML_ERROR_DRIVER_NOT_LOADED;
    } else if (initialisations++ == 0) {
        visible_to_container(&visible);
        make_handles();
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

int fake_entry_missing(void)
{
    return initialisations ? NVML_ERROR_NOT_SUPPORTED : NVML_ERROR_UNINITIALIZED;
}

bool fake_nvml_is_open(void)
{
    return initialisations > 0;
}

nvmlDevice_t fake_nvml_handle(int physical)
{
    for (int index = 0; index < handle_count(); index++)
        if (handles[index].physical == physical)
            return &handles[index];
    return NULL;
}

nvmlReturn_t fake_nvml_check(nvmlDevice_t device, const void *output)
{
    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (device < handles || device >= handles + handle_count() || !output)
        return NVML_ERROR_INVALID_ARGUMENT;
    return NVML_SUCCESS;
}

static const struct hw_device *hardware(nvmlDevice_t device)
{
    return hw_device(device->physical);
}

static nvmlReturn_t write_text(char *text, unsigned int size, const char *value)
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
        initialisations--;
        result = NVML_SUCCESS;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result);
__attribute__((visibility("default"))) const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "Success";
    case NVML_ERROR_UNINITIALIZED:
        return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED:
        return "Not Supported";
    case NVML_ERROR_NOT_FOUND:
        return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED:
        return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT:
        return "Timeout";
    case NVML_ERROR_FUNCTION_NOT_FOUND:
        return "Function Not Found";
    case NVML_ERROR_GPU_IS_LOST:
        return "GPU is lost";
    case NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
        return "Argument version mismatch";
    case NVML_ERROR_UNKNOWN:
        break;
    }
    return "Unknown Error";
}

API(nvmlSystemGetDriverVersion, char *version, unsigned int size)
{
    return initialisations ? write_text(version, size, "570.124.06") : NVML_ERROR_UNINITIALIZED;
}

API(nvmlSystemGetNVMLVersion, char *version, unsigned int size)
{
    return initialisations ? write_text(version, size, "12.570.124.06") : NVML_ERROR_UNINITIALIZED;
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
    return write_text(name, size, text);
}

/* Finding devices */

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
    *device = &handles[index];
    return NVML_SUCCESS;
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
    for (int index = 0; index < handle_count(); index++) {
        if (strcmp(hardware(&handles[index])->uuid, uuid) == 0) {
            *device = &handles[index];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

/* An instance has its GPU's. */
static void write_serial(char *text, size_t size, nvmlDevice_t device)
{
    snprintf(text, size, "%013d", (hardware(device)->parent < 0 ? device->physical : hardware(device)->parent) + 1);
}

API(nvmlDeviceGetHandleBySerial, const char *serial, nvmlDevice_t *device)
{
    char text[16];

    if (!initialisations)
        return NVML_ERROR_UNINITIALIZED;
    if (!serial || !device)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (int index = 0; index < visible.count; index++) {
        write_serial(text, sizeof(text), &handles[index]);
        if (strcmp(text, serial) == 0) {
            *device = &handles[index];
            return NVML_SUCCESS;
        }
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
        const struct hw_device *candidate = hardware(&handles[index]);

        if (candidate->pci_domain == domain && candidate->pci_bus == bus && candidate->pci_device == slot) {
            *device = &handles[index];
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetHandleByPciBusId, const char *bus_id, nvmlDevice_t *device)
{
    return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

/* What a device is */

API(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned int size)
{
    nvmlReturn_t result = fake_nvml_check(device, name);

    return result == NVML_SUCCESS ? write_text(name, size, hardware(device)->name) : result;
}

API(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int size)
{
    nvmlReturn_t result = fake_nvml_check(device, uuid);

    return result == NVML_SUCCESS ? write_text(uuid, size, hardware(device)->uuid) : result;
}

API(nvmlDeviceGetSerial, nvmlDevice_t device, char *serial, unsigned int size)
{
    char text[16];
    nvmlReturn_t result = fake_nvml_check(device, serial);

    if (result != NVML_SUCCESS)
        return result;
    write_serial(text, sizeof(text), device);
    return write_text(serial, size, text);
}

API(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned int *index)
{
    return fake_nvml_number(device, index, device ? device->index : 0);
}

API(nvmlDeviceGetMinorNumber, nvmlDevice_t device, unsigned int *minor)
{
    return fake_nvml_number(device, minor, device ? (unsigned int)device->physical : 0);
}

API(nvmlDeviceGetNumaNodeId, nvmlDevice_t device, unsigned int *node)
{
    nvmlReturn_t result = fake_nvml_check(device, node);

    if (result != NVML_SUCCESS)
        return result;
    if (hardware(device)->numa_node < 0)
        return NVML_ERROR_NOT_SUPPORTED;
    *node = (unsigned int)hardware(device)->numa_node;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = fake_nvml_check(device, pci);
    const struct hw_device *source;

    if (result != NVML_SUCCESS)
        return result;
    source = hardware(device);
    memset(pci, 0, sizeof(*pci));
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", source->pci_domain & 0xffffu,
             source->pci_bus & 0xffu, source->pci_device & 0xffu);
    memcpy(pci->busId, source->pci_bus_id, sizeof(pci->busId));
    pci->domain = source->pci_domain;
    pci->bus = source->pci_bus;
    pci->device = source->pci_device;
    pci->pciDeviceId = 0x20b010de;
    pci->pciSubSystemId = 0x134f10de;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetPciInfo_v2, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

API(nvmlDeviceGetPciInfo, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetPciInfo_v3(device, pci);
}

API(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t device, int *major, int *minor)
{
    nvmlReturn_t result = fake_nvml_check(device, major);

    if (result != NVML_SUCCESS || !minor)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *major = 8;
    *minor = 0;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetBrand, nvmlDevice_t device, unsigned int *brand)
{
    return fake_nvml_number(device, brand, 14);
}

API(nvmlDeviceGetArchitecture, nvmlDevice_t device, unsigned int *architecture)
{
    return fake_nvml_number(device, architecture, 7);
}

API(nvmlDeviceGetNumGpuCores, nvmlDevice_t device, unsigned int *cores)
{
    return fake_nvml_number(device, cores, 6912);
}

/* Memory */

API(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = fake_nvml_check(device, memory);

    if (result != NVML_SUCCESS)
        return result;
    memory->total = hardware(device)->memory_bytes;
    memory->used = fake_nvml_used_bytes(device);
    memory->free = memory->total - memory->used;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlReturn_t result = fake_nvml_check(device, memory);

    if (result != NVML_SUCCESS)
        return result;
    if (memory->version != nvmlMemory_v2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    memory->total = hardware(device)->memory_bytes;
    memory->used = fake_nvml_used_bytes(device);
    memory->free = memory->total - memory->used;
    memory->reserved = 0;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetBAR1MemoryInfo, nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    nvmlReturn_t result = fake_nvml_check(device, memory);

    if (result == NVML_SUCCESS)
        *memory = (nvmlBAR1Memory_t){256 * HW_MIB, 255 * HW_MIB, HW_MIB};
    return result;
}

/* The rest of an nvidia-smi table: plausible, and rising with load where the real thing does */

API(nvmlDeviceGetTemperature, nvmlDevice_t device, int sensor, unsigned int *celsius)
{
    (void)sensor;
    return fake_nvml_number(device, celsius, device ? 34 + fake_nvml_busy(device) / 3 : 0);
}

API(nvmlDeviceGetPowerUsage, nvmlDevice_t device, unsigned int *milliwatts)
{
    return fake_nvml_number(device, milliwatts, device ? 45000 + 2500 * fake_nvml_busy(device) : 0);
}

API(nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t device, unsigned int *milliwatts)
{
    return fake_nvml_number(device, milliwatts, 400000);
}

API(nvmlDeviceGetPowerManagementLimit, nvmlDevice_t device, unsigned int *milliwatts)
{
    return fake_nvml_number(device, milliwatts, 400000);
}

API(nvmlDeviceGetPerformanceState, nvmlDevice_t device, unsigned int *state)
{
    return fake_nvml_number(device, state, 0);
}

API(nvmlDeviceGetClockInfo, nvmlDevice_t device, int type, unsigned int *mhz)
{
    (void)type;
    return fake_nvml_number(device, mhz, 1410);
}

API(nvmlDeviceGetMaxClockInfo, nvmlDevice_t device, int type, unsigned int *mhz)
{
    (void)type;
    return fake_nvml_number(device, mhz, 1410);
}

API(nvmlDeviceGetComputeMode, nvmlDevice_t device, unsigned int *mode)
{
    return fake_nvml_number(device, mode, 0);
}

API(nvmlDeviceGetPersistenceMode, nvmlDevice_t device, unsigned int *mode)
{
    return fake_nvml_number(device, mode, 1);
}

API(nvmlDeviceGetDisplayActive, nvmlDevice_t device, unsigned int *is_active)
{
    return fake_nvml_number(device, is_active, 0);
}

/* Two devices on one NUMA node share a CPU (50), else they meet across the system (60). Source: nvmlGpuTopologyLevel_t. */
API(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t first, nvmlDevice_t second, unsigned int *level)
{
    nvmlReturn_t result = fake_nvml_check(second, level);

    if (result != NVML_SUCCESS)
        return result;
    return fake_nvml_number(first, level, first && hardware(first)->numa_node == hardware(second)->numa_node ? 50 : 60);
}
