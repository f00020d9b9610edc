/*
 * Initialisation of the driver, its errors, and its devices.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/device/mps.h"
#include "cuda/fake.h"
#include "driver/driver.h"
#include "driver/variables.h"
#include "exports/entry.h"
#include "hardware/faults.h"
#include "hardware/visible.h"
#include "time/schedule.h"

/* CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: the kernel's driver has another version than this library. */
enum { SYSTEM_DRIVER_MISMATCH = 803 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_initialised, is_orphaned;
static struct visible visible;

static void orphan_child(void)
{
    atomic_store(&is_orphaned, atomic_load(&is_initialised));
}

CUresult fake_check(void)
{
    if (!is_initialised || is_orphaned)
        return CUDA_ERROR_NOT_INITIALIZED;
    return driver_is_gone() ? CUDA_ERROR_UNKNOWN : fake_mps_check();
}

int fake_physical(CUdevice device)
{
    return device >= 0 && device < visible.count ? visible.device[device] : -1;
}

int fake_ordinal(int physical)
{
    for (int ordinal = 0; ordinal < visible.count; ordinal++)
        if (visible.device[ordinal] == physical)
            return ordinal;
    return -1;
}

uint64_t fake_setting(const char *name, uint64_t otherwise)
{
    const char *setting = variable(name);

    return setting && setting[0] ? strtoull(setting, NULL, 10) : otherwise;
}

/* See the devices. A client of MPS sees only those of its server. */
static CUresult find_devices(void)
{
    CUresult result;
    int count = 0;

    if (!hw_open() || !schedule_open())
        return CUDA_ERROR_NO_DEVICE;
    result = fake_mps_attach();
    if (result != CUDA_SUCCESS)
        return result;
    visible_to_cuda(&visible);
    for (int ordinal = 0; ordinal < visible.count; ordinal++)
        if (fake_mps_has_device(hw_device(visible.device[ordinal])->uuid))
            visible.device[count++] = visible.device[ordinal];
    visible.count = count;
    fake_mps_pin(visible.device, visible.count);
    return visible.count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

/* Open the driver, and see the devices. */
static CUresult initialise(void)
{
    enum driver_state state = driver_open("cuda");
    CUresult result;

    if (state != DRIVER_READY)
        return state == DRIVER_UNLOADED ? CUDA_ERROR_NO_DEVICE : (CUresult)SYSTEM_DRIVER_MISMATCH;
    result = find_devices();
    if (result != CUDA_SUCCESS) {
        driver_close();
        return result;
    }
    for (int ordinal = 0; ordinal < visible.count; ordinal++) {
        fake_context_prepare(ordinal, visible.device[ordinal]);
        fake_pools_prepare(ordinal);
    }
    pthread_atfork(NULL, NULL, orphan_child);
    is_initialised = true;
    return CUDA_SUCCESS;
}

API CUresult cuInit(unsigned int flags)
{
    CUresult result = CUDA_SUCCESS;

    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (is_orphaned)
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&mutex);
    if (!is_initialised)
        result = initialise();
    pthread_mutex_unlock(&mutex);
    return result;
}

API CUresult cuDriverGetVersion(int *version)
{
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = (int)fake_setting("FAKE_DRIVER_CUDA_VERSION", (uint64_t)fake_entry_version);
    return CUDA_SUCCESS;
}

struct error {
    CUresult code;
    const char *name, *text;
};

static const struct error *error_of(CUresult code)
{
#define ERROR(name, text) \
    {                     \
        name, #name, text \
    }
    static const struct error errors[] = {
        ERROR(CUDA_SUCCESS, "no error"),
        ERROR(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
        ERROR(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
        ERROR(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
        ERROR(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
        ERROR(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
        ERROR(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
        ERROR(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
        ERROR(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
        ERROR(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
        ERROR(CUDA_ERROR_NOT_READY, "device not ready"),
        ERROR(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
        ERROR(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
        ERROR(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
        ERROR(CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
        ERROR(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
        ERROR(CUDA_ERROR_MPS_CONNECTION_FAILED, "MPS client failed to connect to the MPS control daemon or the MPS server"),
        ERROR(CUDA_ERROR_MPS_RPC_FAILURE, "the remote procedural call between the MPS server and the MPS client failed"),
        ERROR(CUDA_ERROR_MPS_SERVER_NOT_READY, "MPS server is not ready to accept new MPS client requests"),
        ERROR(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED, "the hardware resources required to create MPS client have been exhausted"),
        ERROR(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
              "the hardware resources required to support device connections have been exhausted"),
        ERROR(CUDA_ERROR_MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
        ERROR(CUDA_ERROR_UNKNOWN, "unknown error"),
    };

    for (size_t index = 0; index < sizeof(errors) / sizeof(errors[0]); index++)
        if (errors[index].code == code)
            return &errors[index];
    return NULL;
}

API CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct error *found = error_of(error);

    *name = found ? found->name : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct error *found = error_of(error);

    *text = found ? found->text : NULL;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)table;
    (void)id;
    return CUDA_ERROR_NOT_FOUND;
}

/* Devices */

CUresult fake_check_device(CUdevice device, const void *output)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (fault_is_lost(fake_physical(device)))
        return CUDA_ERROR_UNKNOWN;
    return output ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuDeviceGetCount(int *count)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    *count = visible.count;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = fake_check_device(ordinal, device);

    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult result = fake_check_device(device, name);

    if (result == CUDA_SUCCESS && size > 0)
        snprintf(name, (size_t)size, "%s", hw_device(fake_physical(device))->name);
    return result;
}

/* The 16 bytes of a UUID after its first four characters, GPU- or MIG-. */
static void write_uuid(CUuuid *uuid, const char *text)
{
    int filled = 0;

    text += strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0 ? 4 : 0;
    memset(uuid, 0, sizeof(*uuid));
    while (*text && filled < 16) {
        unsigned int byte;

        if (*text == '-') {
            text++;
            continue;
        }
        if (sscanf(text, "%2x", &byte) != 1)
            break;
        uuid->bytes[filled++] = (char)byte;
        text += text[1] ? 2 : 1;
    }
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device)
{
    CUresult result = fake_check_device(device, uuid);

    if (result == CUDA_SUCCESS)
        write_uuid(uuid, hw_device(fake_physical(device))->uuid);
    return result;
}

/* For a MIG instance the first version returns the GPU's UUID. */
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = fake_check_device(device, uuid);
    const struct hw_device *hardware;

    if (result != CUDA_SUCCESS)
        return result;
    hardware = hw_device(fake_physical(device));
    write_uuid(uuid, hardware->parent < 0 ? hardware->uuid : hw_device(hardware->parent)->uuid);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    CUresult result = fake_check_device(device, text);

    if (result == CUDA_SUCCESS && size > 0)
        snprintf(text, (size_t)size, "%s", hw_device(fake_physical(device))->pci_bus_id + 4);
    return result;
}

EXTRA(cuDeviceGetByPCIBusId, CUdevice *device, const char *text)
{
    CUresult result = fake_check();
    unsigned int domain, bus, slot;

    if (result != CUDA_SUCCESS)
        return result;
    if (!device || !text || sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return CUDA_ERROR_INVALID_VALUE;
    for (int ordinal = 0; ordinal < visible.count; ordinal++) {
        const struct hw_device *hardware = hw_device(visible.device[ordinal]);

        if (hardware->pci_domain == domain && hardware->pci_bus == bus && hardware->pci_device == slot) {
            *device = ordinal;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_DEVICE;
}

EXTRA(cuDeviceCanAccessPeer, int *can_access, CUdevice device, CUdevice peer)
{
    CUresult result = fake_check_device(peer, can_access);

    if (result == CUDA_SUCCESS)
        result = fake_check_device(device, can_access);
    if (result == CUDA_SUCCESS)
        *can_access = device != peer;
    return result;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    CUresult result = fake_check_device(device, major);

    if (result == CUDA_SUCCESS) {
        *major = 8;
        *minor = 0;
    }
    return result;
}

/*
 * What is the same for every device: that of an A100. Returns 0 for other attributes.
 * Source: cuda.h, CUdevice_attribute, for the numbers; CUDA C++ Programming Guide, technical specifications of compute capability
 * 8.0, for the values.
 */
static int constant_attribute(int attribute)
{
    static const struct {
        int attribute, value;
    } constants[] = {
        {1, 1024},        /* MAX_THREADS_PER_BLOCK */
        {2, 1024},        /* MAX_BLOCK_DIM_X */
        {3, 1024},        /* MAX_BLOCK_DIM_Y */
        {4, 64},          /* MAX_BLOCK_DIM_Z */
        {5, 2147483647},  /* MAX_GRID_DIM_X */
        {6, 65535},       /* MAX_GRID_DIM_Y */
        {7, 65535},       /* MAX_GRID_DIM_Z */
        {8, 48 << 10},    /* MAX_SHARED_MEMORY_PER_BLOCK */
        {9, 64 << 10},    /* TOTAL_CONSTANT_MEMORY */
        {10, 32},         /* WARP_SIZE */
        {12, 64 << 10},   /* MAX_REGISTERS_PER_BLOCK */
        {14, 512},        /* TEXTURE_ALIGNMENT */
        {39, 2048},       /* MAX_THREADS_PER_MULTIPROCESSOR */
        {41, 1},          /* UNIFIED_ADDRESSING */
        {51, 32},         /* TEXTURE_PITCH_ALIGNMENT */
        {75, 8},          /* COMPUTE_CAPABILITY_MAJOR */
        {81, 164 << 10},  /* MAX_SHARED_MEMORY_PER_MULTIPROCESSOR */
        {82, 64 << 10},   /* MAX_REGISTERS_PER_MULTIPROCESSOR */
        {83, 1},          /* MANAGED_MEMORY */
        {89, 1},          /* CONCURRENT_MANAGED_ACCESS */
        {97, 163 << 10},  /* MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
        {102, 1},         /* VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
        {103, 1},         /* HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
        {106, 32},        /* MAX_BLOCKS_PER_MULTIPROCESSOR */
        {115, 1},         /* MEMORY_POOLS_SUPPORTED */
    };

    for (size_t index = 0; index < sizeof(constants) / sizeof(constants[0]); index++)
        if (constants[index].attribute == attribute)
            return constants[index].value;
    return 0;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult result = fake_check_device(device, value);
    const struct hw_device *hardware;

    if (result != CUDA_SUCCESS)
        return result;
    hardware = hw_device(fake_physical(device));
    *value = constant_attribute(attribute);
    switch (attribute) {
    case 16: /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
        *value = (int)fake_mps_multiprocessors();
        break;
    case 33: /* CU_DEVICE_ATTRIBUTE_PCI_BUS_ID */
        *value = (int)hardware->pci_bus;
        break;
    case 34: /* CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID */
        *value = (int)hardware->pci_device;
        break;
    case 50: /* CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID */
        *value = (int)hardware->pci_domain;
        break;
    default:
        break;
    }
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = fake_check_device(device, bytes);

    if (result == CUDA_SUCCESS)
        *bytes = hw_device(fake_physical(device))->memory_bytes;
    return result;
}

API CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice device)
{
    size_t total;
    CUresult result = bytes ? cuDeviceTotalMem_v2(&total, device) : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        *bytes = total > UINT32_MAX ? UINT32_MAX : (unsigned int)total;
    return result;
}
