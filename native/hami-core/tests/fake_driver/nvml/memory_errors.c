/*
 * Errors of a device's memory: ECC counters, retired pages and remapped rows. They are what a test sets, and otherwise zero.
 */
#include "hardware/readings.h"

#include "nvml/fake.h"

enum { VOLATILE, AGGREGATE };
enum { CORRECTED, UNCORRECTED };
enum { IN_DEVICE_MEMORY = 2, LOCATIONS = 8 };

bool fake_nvml_has_ecc(nvmlDevice_t device)
{
    return reading(device->physical, "ecc-mode", 1) == 1;
}

uint64_t fake_nvml_ecc(nvmlDevice_t device, int error, int counter)
{
    static const char *const names[2][2] = {{"ecc-corrected-volatile", "ecc-corrected-aggregate"},
                                            {"ecc-uncorrected-volatile", "ecc-uncorrected-aggregate"}};

    return (uint64_t)reading(device->physical, names[error][counter], 0);
}

API(nvmlDeviceGetEccMode, nvmlDevice_t device, int *current, int *pending)
{
    nvmlReturn_t result = fake_nvml_check(device, current);

    if (result != NVML_SUCCESS || !pending)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *current = *pending = fake_nvml_has_ecc(device);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetTotalEccErrors, nvmlDevice_t device, int error, int counter, unsigned long long *count)
{
    nvmlReturn_t result = fake_nvml_check(device, count);

    if (result != NVML_SUCCESS)
        return result;
    if (error < CORRECTED || error > UNCORRECTED || counter < VOLATILE || counter > AGGREGATE)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!fake_nvml_has_ecc(device))
        return NVML_ERROR_NOT_SUPPORTED;
    *count = fake_nvml_ecc(device, error, counter);
    return NVML_SUCCESS;
}

/* All errors are in the device's memory. */
API(nvmlDeviceGetMemoryErrorCounter, nvmlDevice_t device, int error, int counter, int location, unsigned long long *count)
{
    nvmlReturn_t result = nvmlDeviceGetTotalEccErrors(device, error, counter, count);

    if (result == NVML_SUCCESS && (location < 0 || location >= LOCATIONS))
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS && location != IN_DEVICE_MEMORY)
        *count = 0;
    return result;
}

/* Retired pages, before Ampere */

int64_t fake_nvml_retired(nvmlDevice_t device, int cause)
{
    return reading(device->physical, cause ? "retired-double-bit" : "retired-single-bit", 0);
}

/* The pages of a device are numbered; each has 64 KiB. */
API(nvmlDeviceGetRetiredPages, nvmlDevice_t device, int cause, unsigned int *count, unsigned long long *addresses)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, found;

    if (result != NVML_SUCCESS || cause < 0 || cause > 1)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (!reading_is_of_old_device(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    room = addresses ? *count : 0;
    found = (unsigned int)fake_nvml_retired(device, cause);
    *count = found;
    if (found > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int index = 0; index < found; index++)
        addresses[index] = ((unsigned long long)cause << 32) + ((unsigned long long)index << 16);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetRetiredPages_v2, nvmlDevice_t device, int cause, unsigned int *count, unsigned long long *addresses,
    unsigned long long *times)
{
    nvmlReturn_t result = nvmlDeviceGetRetiredPages(device, cause, count, addresses);

    for (unsigned int index = 0; result == NVML_SUCCESS && times && index < *count; index++)
        times[index] = 0;
    return result;
}

API(nvmlDeviceGetRetiredPagesPendingStatus, nvmlDevice_t device, int *is_pending)
{
    nvmlReturn_t result = fake_nvml_check(device, is_pending);

    if (result != NVML_SUCCESS)
        return result;
    if (!reading_is_of_old_device(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *is_pending = (int)reading(device->physical, "retirement-pending", 0);
    return NVML_SUCCESS;
}

/* Remapped rows, since Ampere */

API(nvmlDeviceGetRemappedRows, nvmlDevice_t device, unsigned int *corrected, unsigned int *uncorrected, unsigned int *is_pending,
    unsigned int *has_failed)
{
    nvmlReturn_t result = fake_nvml_check(device, corrected);

    if (result != NVML_SUCCESS || !uncorrected || !is_pending || !has_failed)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    if (reading_is_of_old_device(device->physical) || hw_device(device->physical)->parent >= 0 ||
        hw_is_partitioned(device->physical))
        return NVML_ERROR_NOT_SUPPORTED;
    *corrected = (unsigned int)reading(device->physical, "remapped-corrected", 0);
    *uncorrected = (unsigned int)reading(device->physical, "remapped-uncorrected", 0);
    *is_pending = (unsigned int)reading(device->physical, "remap-pending", 0);
    *has_failed = (unsigned int)reading(device->physical, "remap-failed", 0);
    return NVML_SUCCESS;
}
