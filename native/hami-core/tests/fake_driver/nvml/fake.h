/*
 * What the parts of the fake libnvidia-ml.so.1 share: device handles.
 *
 * library.c owns initialisation and the handles; device.c what a device is; limits.c the limits on its memory; readings.c its sensors; memory_errors.c and fields.c its
 * counters; mig.c, gpu_instances.c and compute_instances.c MIG; links.c topology and NVLink; processes.c the process lists; utilisation.c samples of use; events.c events.
 */
#ifndef NVML_FAKE_H
#define NVML_FAKE_H

#include <sys/types.h>

#include "hardware/visible.h"
#include "nvml/abi.h"

/* Prototype and definition in one, because the library under test uses few of these. */
#define API(name, ...)              \
    nvmlReturn_t name(__VA_ARGS__); \
    __attribute__((visibility("default"))) nvmlReturn_t name(__VA_ARGS__)

#define NO_INSTANCE 0xffffffffu

struct nvmlDevice_st {
    int physical;
    unsigned int index; /* of a GPU in the container */
};

/* Between nvmlInit and nvmlShutdown. */
bool fake_nvml_is_open(void);

/* What a device answers to every call: NVML_ERROR_GPU_IS_LOST, or the error of a test; NVML_SUCCESS if it works. May wait. */
nvmlReturn_t fake_nvml_fault(nvmlDevice_t device);

/* NVML_SUCCESS for a device of this library that works and a pointer that is not NULL. */
nvmlReturn_t fake_nvml_check(nvmlDevice_t device, const void *output);

/* Answer with one number. */
nvmlReturn_t fake_nvml_number(nvmlDevice_t device, unsigned int *output, unsigned int value);

/* Answer with a text, in a buffer of `size`. */
nvmlReturn_t fake_nvml_text(char *text, unsigned int size, const char *value);

/* Return a device's serial number; a MIG instance has its GPU's. */
void fake_nvml_serial(char *text, size_t size, nvmlDevice_t device);

/* Write where a device is on the PCI bus. */
void fake_nvml_write_pci(nvmlPciInfo_t *pci, const struct hw_device *source);

/* Return the handle of a physical device, or NULL if there is none or the container does not see it. */
nvmlDevice_t fake_nvml_handle(int physical);

/* Return the index of a device: of a GPU in the container, of a MIG device in its GPU. */
unsigned int fake_nvml_index(nvmlDevice_t device);

/* Return the memory of the device that is taken; for a GPU also by its MIG instances. */
uint64_t fake_nvml_used_bytes(nvmlDevice_t device);

/*
 * Return the pid under which NVML lists a process, which is the host's. It differs from the container's pid by
 * FAKE_DRIVER_PID_OFFSET.
 */
unsigned int fake_nvml_pid(pid_t pid);

/* Whether ECC is on; the count of corrected (0) or uncorrected (1) errors, volatile (0) or aggregate (1); the retired pages. */
bool fake_nvml_has_ecc(nvmlDevice_t device);
uint64_t fake_nvml_ecc(nvmlDevice_t device, int error, int counter);
int64_t fake_nvml_retired(nvmlDevice_t device, int cause);

/* Return the percentage of the newest sample in which the device was busy; 0 without samples. */
unsigned int fake_nvml_busy(nvmlDevice_t device);

#endif
