#include "process.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "hooks.h"
#include "limiter.h"
#include "log.h"
#include "memory.h"
#include "options.h"
#include "region.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_watched = PTHREAD_ONCE_INIT;
static _Atomic bool is_attached, is_matched;
static int8_t device_of_ordinal[HAMI_ORDINALS_MAX];
static int ordinal_count;

static void forget_parent(void)
{
    pthread_mutex_init(&mutex, NULL);
    atomic_store(&is_matched, false);
    hami_inside = 0;
    hami_region_forget();
    hami_limiter_forget();
    hami_memory_forget();
}

/*
 * What pthread_atfork is in glibc (Linux Standard Base, libc). Weak, because a musl loader that misses a symbol ends the program; there
 * is no NVIDIA driver for musl whose processes could fork.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library) __attribute__((weak));
extern void *__dso_handle;

static void watch_fork(void)
{
    if (__register_atfork)
        __register_atfork(NULL, NULL, forget_parent, __dso_handle);
}

__attribute__((destructor)) static void leave(void)
{
    if (atomic_load(&is_attached))
        hami_region_release();
}

/* Devices are told apart by the digits of their UUIDs: NVML says GPU- or MIG- before them, CUDA nothing. */
static const char *digits(const char *uuid)
{
    return uuid[0] && uuid[1] && uuid[2] && uuid[3] == '-' ? uuid + 4 : uuid;
}

static bool is_listed(const struct hami_inventory *inventory, const char *uuid)
{
    for (int index = 0; index < inventory->count; index++)
        if (strcmp(digits(inventory->uuids[index]), digits(uuid)) == 0)
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

/* A partitioned GPU is its instances: the container was granted those. Returns false when the GPU is whole. */
static bool list_instances(struct hami_inventory *inventory, nvmlDevice_t gpu)
{
    int before = inventory->count;
    unsigned int most = 0;
    nvmlDevice_t instance;

    if (!hami_real.nvmlDeviceGetMaxMigDeviceCount || !hami_real.nvmlDeviceGetMigDeviceHandleByIndex ||
        HAMI_INSIDE(hami_real.nvmlDeviceGetMaxMigDeviceCount(gpu, &most)) != NVML_SUCCESS)
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

    if (!hami_hooks_load(HAMI_LIBRARY_NVML) || !hami_real.nvmlInit_v2 || !hami_real.nvmlDeviceGetCount_v2 ||
        !hami_real.nvmlDeviceGetHandleByIndex_v2 || !hami_real.nvmlDeviceGetUUID || !hami_real.nvmlShutdown)
        return;
    if (HAMI_INSIDE(hami_real.nvmlInit_v2()) != NVML_SUCCESS)
        return;
    if (HAMI_INSIDE(hami_real.nvmlDeviceGetCount_v2(&count)) != NVML_SUCCESS)
        count = 0;
    for (unsigned int index = 0; index < count && inventory->count < HAMI_DEVICES_MAX; index++)
        if (HAMI_INSIDE(hami_real.nvmlDeviceGetHandleByIndex_v2(index, &device)) == NVML_SUCCESS &&
            !list_instances(inventory, device))
            list_nvml_device(inventory, device);
    HAMI_INSIDE(hami_real.nvmlShutdown());
}

static bool cuda_uuid(CUdevice ordinal, char text[HAMI_UUID_BYTES])
{
    __typeof__(&cuDeviceGetUuid) get = hami_real.cuDeviceGetUuid_v2 ? hami_real.cuDeviceGetUuid_v2 : hami_real.cuDeviceGetUuid;
    unsigned char bytes[16];
    CUuuid uuid;

    text[0] = '\0';
    if (!get || HAMI_INSIDE(get(&uuid, ordinal)) != CUDA_SUCCESS)
        return false;
    memcpy(bytes, uuid.bytes, sizeof(bytes));
    snprintf(text, HAMI_UUID_BYTES, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", bytes[0], bytes[1],
             bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7], bytes[8], bytes[9], bytes[10], bytes[11], bytes[12],
             bytes[13], bytes[14], bytes[15]);
    return true;
}

static int cuda_device_count(void)
{
    int count = 0;

    if (!hami_real.cuDeviceGetCount || HAMI_INSIDE(hami_real.cuDeviceGetCount(&count)) != CUDA_SUCCESS)
        return 0;
    return count > HAMI_ORDINALS_MAX ? HAMI_ORDINALS_MAX : count;
}

/* NVML's devices in NVML's order, which is the region's; then what CUDA sees that NVML does not tell of. */
static void take_inventory(struct hami_inventory *inventory)
{
    char uuid[HAMI_UUID_BYTES];

    list_nvml_devices(inventory);
    for (int ordinal = 0; ordinal < cuda_device_count() && inventory->count < HAMI_DEVICES_MAX; ordinal++)
        if (cuda_uuid(ordinal, uuid) && !is_listed(inventory, uuid))
            strcpy(inventory->uuids[inventory->count++], uuid);
}

bool hami_process_attach(void)
{
    if (atomic_load_explicit(&is_attached, memory_order_acquire))
        return true;
    if (hami_options()->is_disabled)
        return false;
    /* Before any lock is taken: another thread may fork at any time. */
    pthread_once(&fork_watched, watch_fork);
    pthread_mutex_lock(&mutex);
    if (!atomic_load(&is_attached)) {
        hami_region_attach(take_inventory);
        atomic_store_explicit(&is_attached, hami_region() != NULL, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return atomic_load(&is_attached);
}

static int region_device(const char *uuid)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (strcmp(digits(hami_region()->uuids[device]), digits(uuid)) == 0)
            return device;
    return -1;
}

static bool match_all(void)
{
    char uuid[HAMI_UUID_BYTES];
    bool is_complete = true;

    for (int ordinal = 0; ordinal < ordinal_count; ordinal++) {
        device_of_ordinal[ordinal] = cuda_uuid(ordinal, uuid) ? (int8_t)region_device(uuid) : -1;
        if (device_of_ordinal[ordinal] < 0)
            is_complete = false;
        hami_log(HAMI_LOG_DECISION, "CUDA device %d (%s) is device %d of the region", ordinal, uuid, device_of_ordinal[ordinal]);
    }
    return is_complete;
}

static bool match_devices(void)
{
    if (atomic_load_explicit(&is_matched, memory_order_acquire))
        return true;
    if (!hami_process_attach() || !hami_hooks_load(HAMI_LIBRARY_CUDA))
        return false;
    pthread_mutex_lock(&mutex);
    if (!atomic_load(&is_matched)) {
        ordinal_count = cuda_device_count();
        if (!match_all()) {
            hami_region_renew_inventory(take_inventory);
            match_all();
        }
        atomic_store_explicit(&is_matched, ordinal_count > 0, memory_order_release);
    }
    pthread_mutex_unlock(&mutex);
    return ordinal_count > 0;
}

int hami_process_device(CUdevice ordinal)
{
    if (hami_inside || !match_devices() || ordinal < 0 || ordinal >= ordinal_count)
        return -1;
    return device_of_ordinal[ordinal];
}

int hami_process_ordinals(void)
{
    return atomic_load_explicit(&is_matched, memory_order_acquire) ? ordinal_count : 0;
}

CUdevice hami_process_current_ordinal(void)
{
    CUdevice ordinal;

    if (hami_inside || !match_devices() || !hami_real.cuCtxGetDevice || hami_real.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return -1;
    return ordinal;
}

int hami_process_current_device(void)
{
    return hami_process_device(hami_process_current_ordinal());
}

CUdevice hami_process_stream_ordinal(CUstream stream, bool is_per_thread)
{
    __typeof__(&cuStreamGetCtx) get_context =
        is_per_thread && hami_real.cuStreamGetCtx_ptsz ? hami_real.cuStreamGetCtx_ptsz : hami_real.cuStreamGetCtx;
    CUcontext context, popped;
    CUdevice ordinal;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return hami_process_current_ordinal();
    if (hami_inside || !match_devices() || !get_context || !hami_real.cuCtxPushCurrent_v2 || !hami_real.cuCtxPopCurrent_v2)
        return -1;
    if (HAMI_INSIDE(get_context(stream, &context)) != CUDA_SUCCESS ||
        HAMI_INSIDE(hami_real.cuCtxPushCurrent_v2(context)) != CUDA_SUCCESS)
        return -1;
    ordinal = hami_process_current_ordinal();
    HAMI_INSIDE(hami_real.cuCtxPopCurrent_v2(&popped));
    return ordinal;
}

int hami_process_stream_device(CUstream stream, bool is_per_thread)
{
    return hami_process_device(hami_process_stream_ordinal(stream, is_per_thread));
}

HAMI_EXPORT CUresult cuInit(unsigned int flags)
{
    __typeof__(&cuInit) real = HAMI_REAL_CUDA(cuInit);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(flags));
    if (result == CUDA_SUCCESS && !hami_inside && match_devices())
        hami_region_slot();
    return result;
}
