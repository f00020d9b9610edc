/*
 * NVLinks, the topology of PCIe, and access from GPU to GPU.
 */
#include "hardware/links.h"

#include <string.h>

#include "hardware/readings.h"
#include "nvml/fake.h"

/* nvmlIntNvLinkDeviceType_t, nvmlGpuP2PCapsIndex_t, nvmlGpuP2PStatus_t */
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };
enum { BY_NVLINK = 2, BY_PCI = 4 };
enum { POSSIBLE = 0, NOT_SUPPORTED = 5 };

/* Where the switches of a node are. */
static const struct hw_device switches = {.pci_domain = 8, .pci_bus_id = "00000008:00:00.0"};

/* Topology */

API(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t first, nvmlDevice_t second, int *level)
{
    nvmlReturn_t result = fake_nvml_check(second, level);

    if (result == NVML_SUCCESS)
        result = fake_nvml_check(first, level);
    if (result == NVML_SUCCESS)
        *level = hw_ancestor(first->physical, second->physical);
    return result;
}

API(nvmlDeviceGetTopologyNearestGpus, nvmlDevice_t device, int level, unsigned int *count, nvmlDevice_t *devices)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, found = 0;

    if (result != NVML_SUCCESS)
        return result;
    room = devices ? *count : 0;
    for (int row = 0; row < HW_CONFIGURED_MAX; row++) {
        if (row == device->physical || !fake_nvml_handle(row) || hw_device(row)->parent >= 0 ||
            hw_ancestor(device->physical, row) != level)
            continue;
        if (found < room)
            devices[found] = fake_nvml_handle(row);
        found++;
    }
    *count = found;
    return NVML_SUCCESS;
}

API(nvmlDeviceOnSameBoard, nvmlDevice_t first, nvmlDevice_t second, int *is_same)
{
    int level;
    nvmlReturn_t result = is_same ? nvmlDeviceGetTopologyCommonAncestor(first, second, &level) : NVML_ERROR_INVALID_ARGUMENT;

    if (result == NVML_SUCCESS)
        *is_same = level == 0;
    return result;
}

/* Links. A number beyond those of the GPU is invalid, and a GPU without NVLinks does not support them. */

static nvmlReturn_t find_link(nvmlDevice_t device, const void *output, unsigned int number, struct hw_link *link)
{
    nvmlReturn_t result = fake_nvml_check(device, output);
    struct hw_link links[HW_LINKS_MAX];
    unsigned int count;

    if (result != NVML_SUCCESS)
        return result;
    count = hw_device(device->physical)->parent < 0 ? hw_links(device->physical, links) : 0;
    if (!count)
        return NVML_ERROR_NOT_SUPPORTED;
    if (number >= count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *link = links[number];
    return NVML_SUCCESS;
}

API(nvmlDeviceGetNvLinkState, nvmlDevice_t device, unsigned int number, int *is_active)
{
    struct hw_link link;
    nvmlReturn_t result = find_link(device, is_active, number, &link);

    if (result == NVML_SUCCESS)
        *is_active = link.is_up;
    return result;
}

API(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlDevice_t device, unsigned int number, int *type)
{
    struct hw_link link;
    nvmlReturn_t result = find_link(device, type, number, &link);

    if (result == NVML_SUCCESS)
        *type = link.peer < 0 ? REMOTE_SWITCH : REMOTE_GPU;
    return result;
}

API(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci)
{
    struct hw_link link;
    nvmlReturn_t result = find_link(device, pci, number, &link);

    if (result == NVML_SUCCESS)
        fake_nvml_write_pci(pci, link.peer < 0 ? &switches : hw_device(link.peer));
    return result;
}

API(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDevice_t device, unsigned int number, nvmlPciInfo_t *pci)
{
    return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, number, pci);
}

API(nvmlDeviceGetNvLinkVersion, nvmlDevice_t device, unsigned int number, unsigned int *version)
{
    struct hw_link link;
    nvmlReturn_t result = find_link(device, version, number, &link);

    if (result == NVML_SUCCESS)
        *version = 3;
    return result;
}

/* A link can do all that goes from GPU to GPU, and nothing with the memory of the system. */
API(nvmlDeviceGetNvLinkCapability, nvmlDevice_t device, unsigned int number, int capability, unsigned int *is_able)
{
    struct hw_link link;
    nvmlReturn_t result = find_link(device, is_able, number, &link);

    if (result == NVML_SUCCESS && (capability < 0 || capability > 5))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *is_able = capability == 0 || capability == 2 || capability == 5;
    return result;
}

API(nvmlDeviceGetNvLinkErrorCounter, nvmlDevice_t device, unsigned int number, int counter, unsigned long long *count)
{
    static const char *const names[] = {"nvlink-replay-errors", "nvlink-recovery-errors", "nvlink-crc-flit-errors",
                                        "nvlink-crc-data-errors"};
    struct hw_link link;
    nvmlReturn_t result = find_link(device, count, number, &link);

    if (result == NVML_SUCCESS && (counter < 0 || counter > 3))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *count = (unsigned long long)reading(device->physical, names[counter], 0);
    return result;
}

static bool are_linked(int gpu, int other)
{
    struct hw_link links[HW_LINKS_MAX];
    unsigned int count = hw_links(gpu, links);

    for (unsigned int index = 0; index < count; index++)
        if (links[index].is_up && (links[index].peer == other || links[index].peer < 0))
            return true;
    return false;
}

/* Every GPU reaches every other over PCIe, and over NVLink if links of both lead to the other or to switches. */
API(nvmlDeviceGetP2PStatus, nvmlDevice_t first, nvmlDevice_t second, int way, int *status)
{
    nvmlReturn_t result = fake_nvml_check(second, status);

    if (result == NVML_SUCCESS)
        result = fake_nvml_check(first, status);
    if (result != NVML_SUCCESS || way < 0 || way > BY_PCI)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *status = way != BY_NVLINK || (are_linked(first->physical, second->physical) && are_linked(second->physical, first->physical))
                  ? POSSIBLE
                  : NOT_SUPPORTED;
    return NVML_SUCCESS;
}
