/*
 * nvmlDeviceGetFieldValues: numbered fields, most of which other calls return too.
 */
#include <time.h>

#include "hardware/links.h"
#include "hardware/readings.h"
#include "nvml/fake.h"

/* Read one field. */
static nvmlReturn_t read_field(nvmlDevice_t device, unsigned int field, unsigned long long *value)
{
    struct hw_link links[HW_LINKS_MAX];
    unsigned int remapped[4];
    nvmlReturn_t result;

    switch (field) {
    case NVML_FI_DEV_ECC_CURRENT:
    case NVML_FI_DEV_ECC_PENDING:
        *value = fake_nvml_has_ecc(device);
        return NVML_SUCCESS;
    case NVML_FI_DEV_ECC_SBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
    case NVML_FI_DEV_ECC_SBE_AGG_TOTAL:
    case NVML_FI_DEV_ECC_DBE_AGG_TOTAL:
        *value = fake_nvml_ecc(device, (field - NVML_FI_DEV_ECC_SBE_VOL_TOTAL) % 2, (field - NVML_FI_DEV_ECC_SBE_VOL_TOTAL) / 2);
        return fake_nvml_has_ecc(device) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_RETIRED_SBE:
    case NVML_FI_DEV_RETIRED_DBE:
        *value = (uint64_t)fake_nvml_retired(device, (int)(field - NVML_FI_DEV_RETIRED_SBE));
        return reading_is_of_old_device(device->physical) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_RETIRED_PENDING:
        *value = (uint64_t)reading(device->physical, "retirement-pending", 0);
        return reading_is_of_old_device(device->physical) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_REMAPPED_COR:
    case NVML_FI_DEV_REMAPPED_UNC:
    case NVML_FI_DEV_REMAPPED_PENDING:
    case NVML_FI_DEV_REMAPPED_FAILURE:
        result = nvmlDeviceGetRemappedRows(device, &remapped[0], &remapped[1], &remapped[2], &remapped[3]);
        *value = result == NVML_SUCCESS ? remapped[field - NVML_FI_DEV_REMAPPED_COR] : 0;
        return result;
    case NVML_FI_DEV_MEMORY_TEMP:
        *value = (uint64_t)reading(device->physical, "memory-temperature-celsius", 38);
        return NVML_SUCCESS;
    case NVML_FI_DEV_PCIE_REPLAY_COUNTER:
        *value = (uint64_t)reading(device->physical, "pcie-replays", 0);
        return NVML_SUCCESS;
    case NVML_FI_DEV_PCIE_COUNT_TX_BYTES:
        *value = (uint64_t)reading(device->physical, "pcie-transmitted-bytes", 0);
        return NVML_SUCCESS;
    case NVML_FI_DEV_PCIE_COUNT_RX_BYTES:
        *value = (uint64_t)reading(device->physical, "pcie-received-bytes", 0);
        return NVML_SUCCESS;
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX:
        *value = (uint64_t)reading(device->physical, "nvlink-transmitted-kib", 0);
        return hw_links(device->physical, links) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX:
        *value = (uint64_t)reading(device->physical, "nvlink-received-kib", 0);
        return hw_links(device->physical, links) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_NVLINK_LINK_COUNT:
        *value = hw_links(device->physical, links);
        return *value ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
        *value = (uint64_t)reading(device->physical, "recovery-action", 0);
        return NVML_SUCCESS;
    default:
        return NVML_ERROR_NOT_SUPPORTED;
    }
}

API(nvmlDeviceGetFieldValues, nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
    nvmlReturn_t result = fake_nvml_check(device, values);
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    for (int index = 0; result == NVML_SUCCESS && index < count; index++) {
        nvmlFieldValue_t *value = &values[index];

        value->timestamp = now.tv_sec * 1000000ll + now.tv_nsec / 1000;
        value->latencyUsec = 0;
        value->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
        value->value.ullVal = 0;
        value->nvmlReturn = read_field(device, value->fieldId, &value->value.ullVal);
    }
    return result;
}
