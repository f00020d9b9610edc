#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_fake.h"
#include "entry.h"
#include "schedule.h"
#include "visible.h"

enum { CONTEXT_STACK = 32 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_initialised, is_orphaned;
static struct visible visible;
static struct CUctx_st primary[HW_DEVICES_MAX];
static _Thread_local CUcontext stack[CONTEXT_STACK];
static _Thread_local int depth;

static void orphan_child(void)
{
    is_orphaned = is_initialised;
}

CUresult fake_check(void)
{
    return is_initialised && !is_orphaned ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
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
    const char *setting = getenv(name);

    return setting && setting[0] ? strtoull(setting, NULL, 10) : otherwise;
}

CUresult fake_current(CUcontext *context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!depth || !stack[depth - 1])
        return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack[depth - 1];
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
    if (!is_initialised) {
        if (hw_open() && schedule_open())
            visible_to_cuda(&visible);
        if (!visible.count) {
            result = CUDA_ERROR_NO_DEVICE;
        } else {
            for (int ordinal = 0; ordinal < visible.count; ordinal++)
                primary[ordinal] =
                    (struct CUctx_st){.ordinal = ordinal, .physical = visible.device[ordinal], .is_primary = true};
            pthread_atfork(NULL, NULL, orphan_child);
            is_initialised = true;
        }
    }
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

static const struct {
    CUresult code;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
};

API CUresult cuGetErrorName(CUresult error, const char **name)
{
    for (size_t index = 0; index < sizeof(errors) / sizeof(errors[0]); index++) {
        if (errors[index].code == error) {
            *name = errors[index].name;
            return CUDA_SUCCESS;
        }
    }
    *name = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetErrorString(CUresult error, const char **text)
{
    for (size_t index = 0; index < sizeof(errors) / sizeof(errors[0]); index++) {
        if (errors[index].code == error) {
            *text = errors[index].text;
            return CUDA_SUCCESS;
        }
    }
    *text = NULL;
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
    (void)table;
    (void)id;
    return CUDA_ERROR_NOT_FOUND;
}

/* Devices */

static CUresult check_device(CUdevice device, const void *output)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (fake_physical(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
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
    CUresult result = check_device(ordinal, device);

    if (result == CUDA_SUCCESS)
        *device = ordinal;
    return result;
}

API CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    CUresult result = check_device(device, name);

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
    CUresult result = check_device(device, uuid);

    if (result == CUDA_SUCCESS)
        write_uuid(uuid, hw_device(fake_physical(device))->uuid);
    return result;
}

/* Of a MIG instance the first version tells the GPU's. */
API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device)
{
    CUresult result = check_device(device, uuid);
    const struct hw_device *hardware;

    if (result != CUDA_SUCCESS)
        return result;
    hardware = hw_device(fake_physical(device));
    write_uuid(uuid, hardware->parent < 0 ? hardware->uuid : hw_device(hardware->parent)->uuid);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetPCIBusId(char *text, int size, CUdevice device)
{
    CUresult result = check_device(device, text);

    if (result == CUDA_SUCCESS && size > 0)
        snprintf(text, (size_t)size, "%s", hw_device(fake_physical(device))->pci_bus_id + 4);
    return result;
}

API CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice device)
{
    CUresult result = check_device(device, major);

    if (result == CUDA_SUCCESS) {
        *major = 8;
        *minor = 0;
    }
    return result;
}

API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    CUresult result = check_device(device, value);
    const struct hw_device *hardware;

    if (result != CUDA_SUCCESS)
        return result;
    hardware = hw_device(fake_physical(device));
    switch (attribute) {
    case 1: /* CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK */
        *value = 1024;
        break;
    case 10: /* CU_DEVICE_ATTRIBUTE_WARP_SIZE */
        *value = 32;
        break;
    case 16: /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
        *value = 108;
        break;
    case 33: /* CU_DEVICE_ATTRIBUTE_PCI_BUS_ID */
        *value = (int)hardware->pci_bus;
        break;
    case 34: /* CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID */
        *value = (int)hardware->pci_device;
        break;
    case 39: /* CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR */
        *value = 2048;
        break;
    case 50: /* CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID */
        *value = (int)hardware->pci_domain;
        break;
    case 75: /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
        *value = 8;
        break;
    case 41:  /* CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING */
    case 83:  /* CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY */
    case 102: /* CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED */
    case 89:  /* CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS */
    case 103: /* CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED */
    case 115: /* CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED */
        *value = 1;
        break;
    default:
        *value = 0;
    }
    return CUDA_SUCCESS;
}

API CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    CUresult result = check_device(device, bytes);

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

/* Contexts */

static CUresult push(CUcontext context)
{
    if (depth == CONTEXT_STACK)
        return CUDA_ERROR_INVALID_VALUE;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (context->references == 0 && !hw_context_take(context->physical))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        context->references++;
    pthread_mutex_unlock(&mutex);
    return result;
}

static CUresult release(CUcontext context)
{
    CUresult result = CUDA_SUCCESS;

    pthread_mutex_lock(&mutex);
    if (context->references == 0) {
        result = CUDA_ERROR_INVALID_CONTEXT;
    } else if (--context->references == 0) {
        fake_execution_forget(context);
        fake_memory_forget(context);
        hw_context_give(context->physical);
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = check_device(device, context);

    if (result == CUDA_SUCCESS)
        result = retain(&primary[device]);
    if (result == CUDA_SUCCESS)
        *context = &primary[device];
    return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = check_device(device, &device);

    return result == CUDA_SUCCESS ? release(&primary[device]) : result;
}

API CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    return cuDevicePrimaryCtxRelease_v2(device);
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = check_device(device, &device);

    if (result == CUDA_SUCCESS) {
        fake_execution_forget(&primary[device]);
        fake_memory_forget(&primary[device]);
    }
    return result;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = check_device(device, flags);

    if (result == CUDA_SUCCESS) {
        *flags = 0;
        *active = primary[device].references > 0;
    }
    return result;
}

API CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult result = check_device(device, context);
    CUcontext fresh;

    (void)flags;
    if (result != CUDA_SUCCESS)
        return result;
    fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *fresh = (struct CUctx_st){.ordinal = device, .physical = fake_physical(device)};
    result = retain(fresh);
    if (result == CUDA_SUCCESS)
        result = push(fresh);
    if (result != CUDA_SUCCESS) {
        free(fresh);
        return result;
    }
    *context = fresh;
    return CUDA_SUCCESS;
}

API CUresult cuCtxDestroy_v2(CUcontext context)
{
    if (!context || context->is_primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    for (int index = 0; index < depth; index++)
        if (stack[index] == context)
            stack[index] = NULL;
    release(context);
    free(context);
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = fake_check();

    if (result == CUDA_SUCCESS)
        *context = depth ? stack[depth - 1] : NULL;
    return result;
}

API CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (depth)
        depth--;
    return context ? push(context) : CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    return context ? push(context) : CUDA_ERROR_INVALID_CONTEXT;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUcontext top;
    CUresult result = fake_current(&top);

    if (result != CUDA_SUCCESS)
        return result;
    depth--;
    if (context)
        *context = top;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = fake_current(&context);

    if (result == CUDA_SUCCESS)
        *device = context->ordinal;
    return result;
}

EXTRA(cuCtxGetApiVersion, CUcontext context, unsigned int *version)
{
    (void)context;
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = 3020;
    return CUDA_SUCCESS;
}
