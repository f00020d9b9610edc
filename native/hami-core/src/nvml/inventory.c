#include "inventory.h"

#include <stdio.h>
#include <string.h>

#include "hooks.h"
#include "uuid.h"

static bool is_listed(const struct hami_inventory *inventory, const char *uuid)
{
    for (int index = 0; index < inventory->count; index++)
        if (hami_is_same_uuid(inventory->uuids[index], uuid))
            return true;
    return false;
}

static void list_nvml_device(struct hami_inventory *inventory, nvmlDevice_t device)
{
    char *uuid = inventory->uuids[inventory->count];

    if (inventory->count < HAMI_DEVICES_MAX &&
        HAMI_INSIDE(hami_real.nvmlDeviceGetUUID(device, uuid, HAMI_UUID_BYTES)) == NVML_SUCCESS)
        inventory->count++;
}

/*
 * List the instances of a partitioned GPU in its place, because the container was granted those. Returns false if the GPU is whole.
 */
static bool list_instances(struct hami_inventory *inventory, nvmlDevice_t gpu)
{
    int before = inventory->count;
    unsigned int most = 0;
    nvmlDevice_t instance;

    if (HAMI_INSIDE(hami_real.nvmlDeviceGetMaxMigDeviceCount(gpu, &most)) != NVML_SUCCESS)
        return false;
    for (unsigned int index = 0; index < most; index++)
        if (HAMI_INSIDE(hami_real.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index, &instance)) == NVML_SUCCESS)
            list_nvml_device(inventory, instance);
    return inventory->count > before;
}

static void list_nvml_devices(struct hami_inventory *inventory)
{
    unsigned int count = 0;
    nvmlDevice_t device;

    if (!hami_hooks_load(HAMI_LIBRARY_NVML) || HAMI_INSIDE(hami_real.nvmlInit_v2()) != NVML_SUCCESS)
        return;
    if (HAMI_INSIDE(hami_real.nvmlDeviceGetCount_v2(&count)) != NVML_SUCCESS)
        count = 0;
    for (unsigned int index = 0; index < count && inventory->count < HAMI_DEVICES_MAX; index++)
        if (HAMI_INSIDE(hami_real.nvmlDeviceGetHandleByIndex_v2(index, &device)) == NVML_SUCCESS &&
            !list_instances(inventory, device))
            list_nvml_device(inventory, device);
    HAMI_INSIDE(hami_real.nvmlShutdown());
}

bool hami_cuda_uuid(CUdevice ordinal, char text[HAMI_UUID_BYTES])
{
    __typeof__(&cuDeviceGetUuid) get =
        HAMI_HAS(hami_real.cuDeviceGetUuid_v2) ? hami_real.cuDeviceGetUuid_v2 : hami_real.cuDeviceGetUuid;
    unsigned char bytes[16];
    CUuuid uuid;

    text[0] = '\0';
    if (HAMI_INSIDE(get(&uuid, ordinal)) != CUDA_SUCCESS)
        return false;
    memcpy(bytes, uuid.bytes, sizeof(bytes));
    snprintf(text, HAMI_UUID_BYTES, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1],
             bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11], bytes[12],
             bytes[13], bytes[14], bytes[15]);
    return true;
}

int hami_cuda_device_count(void)
{
    int count = 0;

    if (HAMI_INSIDE(hami_real.cuDeviceGetCount(&count)) != CUDA_SUCCESS)
        return 0;
    return count > HAMI_ORDINALS_MAX ? HAMI_ORDINALS_MAX : count;
}

/* NVML's devices come first, in NVML's order, which is the region's. Then those that only CUDA lists. */
void hami_list_devices(struct hami_inventory *inventory)
{
    char uuid[HAMI_UUID_BYTES];

    list_nvml_devices(inventory);
    for (int ordinal = 0; ordinal < hami_cuda_device_count() && inventory->count < HAMI_DEVICES_MAX; ordinal++)
        if (hami_cuda_uuid(ordinal, uuid) && !is_listed(inventory, uuid))
            strcpy(inventory->uuids[inventory->count++], uuid);
}
