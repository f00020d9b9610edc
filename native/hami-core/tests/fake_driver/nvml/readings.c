/*
 * Temperature, power and clocks. A test may set each; otherwise they are plausible, and rise with load like the real ones.
 */
#include "hardware/readings.h"

#include "hardware/compute_mode.h"
#include "nvml/fake.h"
#include "nvml/mig.h"

enum { MEMORY_CLOCK = 2 };

/* nvmlTemperatureThresholds_t */
enum { SHUTDOWN, SLOWDOWN, MEMORY_MAX, GPU_MAX };

static nvmlReturn_t answer(nvmlDevice_t device, unsigned int *output, const char *name, int64_t otherwise)
{
    nvmlReturn_t result = fake_nvml_check(device, output);

    if (result == NVML_SUCCESS)
        *output = (unsigned int)reading(device->physical, name, otherwise);
    return result;
}

API(nvmlDeviceGetComputeMode, nvmlDevice_t device, nvmlComputeMode_t *mode)
{
    nvmlReturn_t result = fake_nvml_check(device, mode);

    if (result == NVML_SUCCESS)
        *mode = (nvmlComputeMode_t)hw_compute_mode(device->physical);
    return result;
}

API(nvmlDeviceSetComputeMode, nvmlDevice_t device, nvmlComputeMode_t mode)
{
    nvmlReturn_t result = fake_nvml_check(device, device);

    if (result == NVML_SUCCESS && hw_device(device->physical)->parent >= 0)
        return NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS && mode != NVML_COMPUTEMODE_DEFAULT && mode != NVML_COMPUTEMODE_PROHIBITED &&
        mode != NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        result = fake_nvml_check_root();
    if (result == NVML_SUCCESS)
        hw_compute_mode_set(device->physical, (enum hw_compute_mode)mode);
    return result;
}

/* Temperature */

static int64_t temperature(nvmlDevice_t device)
{
    return reading(device->physical, "temperature-celsius", 34 + fake_nvml_busy(device) / 3);
}

static int64_t threshold(nvmlDevice_t device, int type)
{
    static const struct {
        const char *name;
        int celsius;
    } thresholds[] = {[SHUTDOWN] = {"shutdown-celsius", 92},
                      [SLOWDOWN] = {"slowdown-celsius", 89},
                      [MEMORY_MAX] = {"memory-max-celsius", 95},
                      [GPU_MAX] = {"gpu-max-celsius", 85}};

    return reading(device->physical, thresholds[type].name, thresholds[type].celsius);
}

API(nvmlDeviceGetTemperature, nvmlDevice_t device, int sensor, unsigned int *celsius)
{
    nvmlReturn_t result = fake_nvml_check(device, celsius);

    if (result == NVML_SUCCESS && sensor != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (result == NVML_SUCCESS)
        *celsius = (unsigned int)temperature(device);
    return result;
}

API(nvmlDeviceGetTemperatureV, nvmlDevice_t device, nvmlTemperature_v1_t *info)
{
    nvmlReturn_t result = fake_nvml_check(device, info);

    if (result != NVML_SUCCESS)
        return result;
    if (info->version != nvmlTemperature_v1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    if (info->sensorType != 0)
        return NVML_ERROR_INVALID_ARGUMENT;
    info->temperature = (int)temperature(device);
    return NVML_SUCCESS;
}

API(nvmlDeviceGetTemperatureThreshold, nvmlDevice_t device, int type, unsigned int *celsius)
{
    nvmlReturn_t result = fake_nvml_check(device, celsius);

    if (result == NVML_SUCCESS && (type < SHUTDOWN || type > GPU_MAX))
        return NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        *celsius = (unsigned int)threshold(device, type);
    return result;
}

/* Clocks: half of them while the device slows down */

static uint64_t reasons(nvmlDevice_t device)
{
    int64_t celsius = temperature(device);
    uint64_t found = fake_nvml_busy(device) ? 0 : nvmlClocksEventReasonGpuIdle;

    if (celsius >= threshold(device, GPU_MAX))
        found |= nvmlClocksEventReasonSwThermalSlowdown;
    if (celsius >= threshold(device, SLOWDOWN))
        found |= nvmlClocksThrottleReasonHwSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown;
    return (uint64_t)reading(device->physical, "clock-reasons", (int64_t)found);
}

API(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t device, unsigned long long *found)
{
    nvmlReturn_t result = fake_nvml_check(device, found);

    if (result == NVML_SUCCESS)
        *found = reasons(device);
    return result;
}

API(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t device, unsigned long long *found)
{
    return nvmlDeviceGetCurrentClocksEventReasons(device, found);
}

API(nvmlDeviceGetSupportedClocksEventReasons, nvmlDevice_t device, unsigned long long *supported)
{
    nvmlReturn_t result = fake_nvml_check(device, supported);

    if (result == NVML_SUCCESS)
        *supported = nvmlClocksEventReasonGpuIdle | nvmlClocksEventReasonSwPowerCap | nvmlClocksThrottleReasonHwSlowdown |
                     nvmlClocksEventReasonSwThermalSlowdown | nvmlClocksThrottleReasonHwThermalSlowdown |
                     nvmlClocksThrottleReasonHwPowerBrakeSlowdown;
    return result;
}

API(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDevice_t device, unsigned long long *supported)
{
    return nvmlDeviceGetSupportedClocksEventReasons(device, supported);
}

API(nvmlDeviceGetMaxClockInfo, nvmlDevice_t device, int type, unsigned int *mhz)
{
    return answer(device, mhz, type == MEMORY_CLOCK ? "memory-clock-max-mhz" : "clock-max-mhz", type == MEMORY_CLOCK ? 1215 : 1410);
}

API(nvmlDeviceGetClockInfo, nvmlDevice_t device, int type, unsigned int *mhz)
{
    unsigned int most;
    nvmlReturn_t result = nvmlDeviceGetMaxClockInfo(device, type, &most);

    if (result == NVML_SUCCESS && type != MEMORY_CLOCK && reasons(device) & nvmlClocksThrottleReasonHwSlowdown)
        most /= 2;
    return result == NVML_SUCCESS ? answer(device, mhz, type == MEMORY_CLOCK ? "memory-clock-mhz" : "clock-mhz", most) : result;
}

API(nvmlDeviceGetClock, nvmlDevice_t device, int type, int which, unsigned int *mhz)
{
    (void)which;
    return nvmlDeviceGetClockInfo(device, type, mhz);
}

/* Power */

API(nvmlDeviceGetPowerUsage, nvmlDevice_t device, unsigned int *milliwatts)
{
    nvmlReturn_t result = fake_nvml_check(device, milliwatts);

    return result == NVML_SUCCESS ? answer(device, milliwatts, "power-milliwatts", 45000 + 2500 * fake_nvml_busy(device)) : result;
}

API(nvmlDeviceGetPowerManagementLimit, nvmlDevice_t device, unsigned int *milliwatts)
{
    return answer(device, milliwatts, "power-limit-milliwatts", 400000);
}

API(nvmlDeviceGetEnforcedPowerLimit, nvmlDevice_t device, unsigned int *milliwatts)
{
    return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

API(nvmlDeviceGetPowerManagementDefaultLimit, nvmlDevice_t device, unsigned int *milliwatts)
{
    return fake_nvml_number(device, milliwatts, 400000);
}

API(nvmlDeviceGetPowerManagementLimitConstraints, nvmlDevice_t device, unsigned int *least, unsigned int *most)
{
    nvmlReturn_t result = fake_nvml_check(device, least);

    if (result != NVML_SUCCESS || !most)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *least = 100000;
    *most = 400000;
    return NVML_SUCCESS;
}

/* 100 W since the node's clock began, unless a test gives the energy. */
API(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t device, unsigned long long *millijoules)
{
    nvmlReturn_t result = fake_nvml_check(device, millijoules);

    if (result == NVML_SUCCESS)
        *millijoules = (uint64_t)reading(device->physical, "energy-millijoules", (int64_t)(hw_now_ns() / 10000));
    return result;
}
