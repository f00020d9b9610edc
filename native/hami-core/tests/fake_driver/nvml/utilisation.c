/*
 * Samples of use, as NVML returns them: late, coarse and sometimes missing.
 *
 * Time is divided into windows of FAKE_DRIVER_NVML_WINDOW_MS (166), at whole multiples on the node's clock. A window's sample can
 * be read FAKE_DRIVER_NVML_DELAY_MS (100) after its end, and is kept until SAMPLES newer ones exist. FAKE_DRIVER_NVML_LOSS percent
 * of the samples, chosen by FAKE_DRIVER_SEED, are missing. A window of 0 stands for hardware that does not measure. The process
 * call returns one structure for each process, of the newest window in which it ran; less than half a percent counts as nothing.
 * Source: NVML API reference, nvmlDeviceGetProcessUtilization.
 */
#include <stdlib.h>
#include <time.h>

#include "driver/variables.h"
#include "nvml/fake.h"
#include "time/schedule.h"

enum { SAMPLES = 100, GPU_UTILIZATION_SAMPLES = 1 };

/* Windows are numbered from the clock's zero. */
struct samples {
    uint64_t window_ns;
    uint64_t oldest, end; /* those in [oldest, end) can be read */
};

static uint64_t setting(const char *name, uint64_t otherwise)
{
    const char *text = variable(name);

    return text && text[0] ? strtoull(text, NULL, 10) : otherwise;
}

static uint64_t wall_ns(void)
{
    struct timespec wall;

    clock_gettime(CLOCK_REALTIME, &wall);
    return (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec;
}

/* Return the wall-clock time of a window's end in microseconds. It is the same at every call. */
static unsigned long long stamp(const struct samples *samples, uint64_t window)
{
    static uint64_t ahead_ns;

    if (!ahead_ns)
        ahead_ns = wall_ns() - hw_now_ns();
    return (ahead_ns + (window + 1) * samples->window_ns) / 1000u;
}

static uint64_t lesser(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

static nvmlReturn_t find_samples(struct samples *samples, unsigned long long last_seen)
{
    uint64_t window_ns = setting("FAKE_DRIVER_NVML_WINDOW_MS", 166) * 1000000u;
    uint64_t delay_ns = setting("FAKE_DRIVER_NVML_DELAY_MS", 100) * 1000000u, now = hw_now_ns();

    if (!window_ns || !schedule_open())
        return NVML_ERROR_NOT_SUPPORTED;
    samples->window_ns = window_ns;
    samples->end = (now - lesser(delay_ns, now)) / window_ns;
    samples->oldest = samples->end - lesser(SAMPLES, samples->end);
    while (samples->oldest < samples->end && stamp(samples, samples->oldest) <= last_seen)
        samples->oldest++;
    return samples->oldest < samples->end ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/* Source of the constant: Knuth, The Art of Computer Programming, multiplicative hashing. */
static bool is_lost(int device, uint64_t window)
{
    uint64_t loss = setting("FAKE_DRIVER_NVML_LOSS", 0);
    uint64_t key = (setting("FAKE_DRIVER_SEED", 1) << 32) + window * HW_CONFIGURED_MAX + (uint64_t)device;

    return loss && (key * 0x9e3779b97f4a7c15u >> 32) % 100 < loss;
}

static unsigned int percent(const struct samples *samples, uint64_t busy_ns)
{
    return (unsigned int)((busy_ns * 100 + samples->window_ns / 2) / samples->window_ns);
}

/* Processes */

/* Find the processes of one window that are not among `found`. Returns how many are found now, including those beyond the room. */
static unsigned int add_window(const struct samples *samples, int device, uint64_t window, nvmlProcessUtilizationSample_t *found,
                               uint64_t *processes, unsigned int count)
{
    struct schedule_use uses[SCHEDULE_CONTEXTS_MAX];
    int busy = schedule_uses(device, window * samples->window_ns, (window + 1) * samples->window_ns, uses);

    for (int index = 0; index < busy && count < SCHEDULE_CONTEXTS_MAX; index++) {
        unsigned int share = percent(samples, uses[index].busy_ns), known = 0;

        while (known < count && processes[known] != uses[index].process)
            known++;
        if (!share || known < count)
            continue;
        processes[count] = uses[index].process;
        found[count++] = (nvmlProcessUtilizationSample_t){
            .pid = fake_nvml_pid(uses[index].pid), .timeStamp = stamp(samples, window), .smUtil = share, .memUtil = share / 2};
    }
    return count;
}

API(nvmlDeviceGetProcessUtilization, nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count,
    unsigned long long last_seen)
{
    nvmlProcessUtilizationSample_t found[SCHEDULE_CONTEXTS_MAX];
    uint64_t processes[SCHEDULE_CONTEXTS_MAX];
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, total = 0;
    struct samples kept;

    if (result == NVML_SUCCESS)
        result = find_samples(&kept, last_seen);
    if (result != NVML_SUCCESS)
        return result;
    for (uint64_t window = kept.end; window > kept.oldest; window--)
        if (!is_lost(device->physical, window - 1))
            total = add_window(&kept, device->physical, window - 1, found, processes, total);
    room = samples ? *count : 0;
    *count = total;
    if (total > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned int index = 0; index < total; index++)
        samples[index] = found[index];
    return total ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

API(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *info)
{
    nvmlProcessUtilizationSample_t found[SCHEDULE_CONTEXTS_MAX];
    unsigned int total = SCHEDULE_CONTEXTS_MAX, room;
    nvmlReturn_t result;

    if (!info || info->version != nvmlProcessesUtilizationInfo_v1)
        return info ? NVML_ERROR_ARGUMENT_VERSION_MISMATCH : NVML_ERROR_INVALID_ARGUMENT;
    result = nvmlDeviceGetProcessUtilization(device, found, &total, info->lastSeenTimeStamp);
    if (result != NVML_SUCCESS)
        return result;
    room = info->procUtilArray ? info->processSamplesCount : 0;
    info->processSamplesCount = total;
    for (unsigned int index = 0; total <= room && index < total; index++)
        info->procUtilArray[index] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = found[index].timeStamp,
                                                                       .pid = found[index].pid,
                                                                       .smUtil = found[index].smUtil,
                                                                       .memUtil = found[index].memUtil};
    return total > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* Devices */

static unsigned int device_percent(const struct samples *samples, int device, uint64_t window)
{
    return percent(samples, schedule_busy_ns(device, 0, window * samples->window_ns, (window + 1) * samples->window_ns));
}

static nvmlReturn_t newest_percent(nvmlDevice_t device, unsigned int *busy)
{
    struct samples samples;
    nvmlReturn_t result = find_samples(&samples, 0);
    uint64_t window = result == NVML_SUCCESS ? samples.end - 1 : 0;

    *busy = 0;
    if (result == NVML_ERROR_NOT_SUPPORTED)
        return result;
    while (result == NVML_SUCCESS && window > samples.oldest && is_lost(device->physical, window))
        window--;
    if (result == NVML_SUCCESS)
        *busy = device_percent(&samples, device->physical, window);
    return NVML_SUCCESS;
}

unsigned int fake_nvml_busy(nvmlDevice_t device)
{
    unsigned int busy = 0;

    if (fake_nvml_check(device, &busy) == NVML_SUCCESS)
        newest_percent(device, &busy);
    return busy;
}

API(nvmlDeviceGetUtilizationRates, nvmlDevice_t device, nvmlUtilization_t *utilization)
{
    nvmlReturn_t result = fake_nvml_check(device, utilization);

    if (result == NVML_SUCCESS)
        result = newest_percent(device, &utilization->gpu);
    if (result == NVML_SUCCESS)
        utilization->memory = utilization->gpu / 2;
    return result;
}

API(nvmlDeviceGetSamples, nvmlDevice_t device, int type, unsigned long long last_seen, int *value_type, unsigned int *count,
    nvmlSample_t *samples)
{
    nvmlReturn_t result = fake_nvml_check(device, count);
    unsigned int room, total = 0;
    struct samples kept;

    if (result == NVML_SUCCESS && type != GPU_UTILIZATION_SAMPLES)
        result = NVML_ERROR_NOT_SUPPORTED;
    if (result == NVML_SUCCESS)
        result = find_samples(&kept, last_seen);
    if (result != NVML_SUCCESS || !value_type)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *value_type = NVML_VALUE_TYPE_UNSIGNED_INT;
    room = samples ? *count : SAMPLES;
    for (uint64_t window = kept.oldest; window < kept.end; window++) {
        if (is_lost(device->physical, window))
            continue;
        if (samples && total < room)
            samples[total] = (nvmlSample_t){stamp(&kept, window), {.uiVal = device_percent(&kept, device->physical, window)}};
        total++;
    }
    *count = total < room ? total : room;
    return total ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

static nvmlReturn_t codec_utilization(nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    nvmlReturn_t result = fake_nvml_check(device, utilization);

    if (result != NVML_SUCCESS || !period_us)
        return result != NVML_SUCCESS ? result : NVML_ERROR_INVALID_ARGUMENT;
    *utilization = 0;
    *period_us = (unsigned int)setting("FAKE_DRIVER_NVML_WINDOW_MS", 166) * 1000u;
    return NVML_SUCCESS;
}

API(nvmlDeviceGetEncoderUtilization, nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    return codec_utilization(device, utilization, period_us);
}

API(nvmlDeviceGetDecoderUtilization, nvmlDevice_t device, unsigned int *utilization, unsigned int *period_us)
{
    return codec_utilization(device, utilization, period_us);
}
