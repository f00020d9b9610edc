/*
 * NVML's answers about a device: name, location, memory, and the other fields of nvidia-smi's table.
 */
#include <stdio.h>
#include <string.h>

#include "hardware/limits.h"
#include "hardware/readings.h"
#include "nvml/fake.h"

static const struct hw_device *hardware(nvmlDevice_t device)
{
    return hw_device(device->physical);
}

/* Answer with a number of an enumeration. */
static nvmlReturn_t enumerated(nvmlDevice_t device, int *output, int value)
{
    nvmlReturn_t result = fake_nvml_check(device, output);

    if (result == NVML_SUCCESS)
        *output = value;
    return result;
}

void fake_nvml_serial(char *text, size_t size, nvmlDevice_t device)
{
    snprintf(text, size, "%013d", (hardware(device)->parent < 0 ? device->physical : hardware(device)->parent) + 1);
}

API(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned int size)
{
    nvmlReturn_t result = fake_nvml_check(device, name);

    return result == NVML_SUCCESS ? fake_nvml_text(name, size, hardware(device)->name) : result;
}

API(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int size)
{
    nvmlReturn_t result = fake_nvml_check(device, uuid);

    return result == NVML_SUCCESS ? fake_nvml_text(uuid, size, hardware(device)->uuid) : result;
}

API(nvmlDeviceGetSerial, nvmlDevice_t device, char *serial, unsigned int size)
{
    char text[16];
    nvmlReturn_t result = fake_nvml_check(device, serial);

    if (result != NVML_SUCCESS)
        return result;
    fake_nvml_serial(text, sizeof(text), device);
    return fake_nvml_text(serial, size, text);
}

API(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned int *index)
{
    nvmlReturn_t result = fake_nvml_check(device, index);

    if (result == NVML_SUCCESS)
        *index = fake_nvml_index(device);
    return result;
}

/* An instance has its GPU's. */
API(nvmlDeviceGetMinorNumber, nvmlDevice_t device, unsigned int *minor)
{
    nvmlReturn_t result = fake_nvml_check(device, minor);

    if (result == NVML_SUCCESS)
        *minor = (unsigned int)(hardware(device)->parent < 0 ? device->physical : hardware(device)->parent);
    return result;
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

void fake_nvml_write_pci(nvmlPciInfo_t *pci, const struct hw_device *source)
{
    *pci = (nvmlPciInfo_t){.domain = source->pci_domain,
                           .bus = source->pci_bus,
                           .device = source->pci_device,
                           .pciDeviceId = 0x20b010de,
                           .pciSubSystemId = 0x134f10de};
    snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%04X:%02X:%02X.0", source->pci_domain & 0xffffu, source->pci_bus & 0xffu,
             source->pci_device & 0xffu);
    memcpy(pci->busId, source->pci_bus_id, sizeof(pci->busId));
}

API(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    nvmlReturn_t result = fake_nvml_check(device, pci);

    if (result == NVML_SUCCESS)
        fake_nvml_write_pci(pci, hardware(device));
    return result;
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

API(nvmlDeviceGetBrand, nvmlDevice_t device, int *brand)
{
    return enumerated(device, brand, 14);
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

static bool is_partitioned(nvmlDevice_t device)
{
    return hardware(device)->parent < 0 && hw_is_partitioned(device->physical);
}

/* The memory of a GPU in MIG mode, which has no limits, includes that of its instances. */
static void see_memory(nvmlDevice_t device, unsigned long long *total, unsigned long long *used)
{
    uint64_t seen_total, seen_used;

    hw_memory_seen(device->physical, &seen_total, &seen_used);
    *total = seen_total;
    *used = is_partitioned(device) ? fake_nvml_used_bytes(device) : seen_used;
}

API(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = fake_nvml_check(device, memory);

    if (result != NVML_SUCCESS)
        return result;
    see_memory(device, &memory->total, &memory->used);
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
    see_memory(device, &memory->total, &memory->used);
    memory->free = memory->total - memory->used;
    memory->reserved = hw_memory_reserved(device->physical);
    memory->used -= memory->reserved < memory->used ? memory->reserved : memory->used;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetBAR1MemoryInfo, nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
    nvmlReturn_t result = fake_nvml_check(device, memory);

    if (result == NVML_SUCCESS)
        *memory = (nvmlBAR1Memory_t){256 * HW_MIB, 255 * HW_MIB, HW_MIB};
    return result;
}

/* The other fields of nvidia-smi's table */

API(nvmlDeviceGetPerformanceState, nvmlDevice_t device, int *state)
{
    return enumerated(device, state, 0);
}

API(nvmlDeviceGetPersistenceMode, nvmlDevice_t device, int *mode)
{
    nvmlReturn_t result = fake_nvml_check(device, mode);

    if (result == NVML_SUCCESS)
        *mode = (int)reading(device->physical, "persistence-mode", 1);
    return result;
}

API(nvmlDeviceGetDisplayActive, nvmlDevice_t device, int *is_active)
{
    return enumerated(device, is_active, 0);
}
