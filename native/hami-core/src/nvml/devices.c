#include "devices.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "hooks.h"
#include "inventory.h"
#include "lock_rank.h"
#include "log.h"
#include "region.h"
#include "region_file.h"
#include "region_map.h"
#include "uuid.h"

/* The region devices of the CUDA ordinals. */
struct matching {
    int count;
    int8_t device[HAMI_ORDINALS_MAX];
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* for `matched`, until is_matched */
static _Atomic bool is_matched;
static struct matching matched;

static int region_device(const char *uuid)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (hami_is_same_uuid(hami_region()->uuids[device], uuid))
            return device;
    return -1;
}

static bool match_all(struct matching *matching)
{
    char uuid[HAMI_UUID_BYTES];
    bool is_complete = true;

    for (int ordinal = 0; ordinal < matching->count; ordinal++) {
        matching->device[ordinal] = hami_cuda_uuid(ordinal, uuid) ? (int8_t)region_device(uuid) : -1;
        if (matching->device[ordinal] < 0)
            is_complete = false;
        hami_log(HAMI_LOG_DECISION, "CUDA device %d (%s) is region device %d", ordinal, uuid, matching->device[ordinal]);
    }
    return is_complete;
}

/* The region could not be asked to take in a device: this process gets nothing of it. */
static void refuse_unknown(struct matching *matching)
{
    for (int ordinal = 0; ordinal < matching->count; ordinal++) {
        if (matching->device[ordinal] >= 0)
            continue;
        matching->device[ordinal] = (int8_t)hami_region_refused_device();
        hami_log(HAMI_LOG_ERROR, "CUDA device %d is not in the region: nothing can be allocated on it", ordinal);
    }
}

static void match(struct matching *matching)
{
    bool is_joined;

    memset(matching->device, -1, sizeof(matching->device));
    matching->count = hami_cuda_device_count();
    is_joined = matching->count <= 0 || hami_region_join();
    if (is_joined && match_all(matching))
        return;
    if (is_joined && hami_region_renew_inventory(hami_list_devices))
        match_all(matching);
    else
        refuse_unknown(matching);
}

bool hami_match_devices(void)
{
    struct matching matching;

    if (atomic_load_explicit(&is_matched, memory_order_acquire))
        return true;
    if (!hami_hooks_load(HAMI_LIBRARY_CUDA) || !hami_start())
        return false;
    match(&matching);
    if (!matching.count)
        return false;
    hami_lock(&mutex, HAMI_RANK_DEVICES);
    if (!atomic_load(&is_matched))
        matched = matching;
    atomic_store_explicit(&is_matched, true, memory_order_release);
    hami_unlock(&mutex, HAMI_RANK_DEVICES);
    return true;
}

int hami_device_of_ordinal(CUdevice ordinal)
{
    if (hami_inside || !hami_match_devices() || ordinal < 0 || ordinal >= matched.count)
        return -1;
    return matched.device[ordinal];
}

int hami_ordinal_count(void)
{
    return atomic_load_explicit(&is_matched, memory_order_acquire) ? matched.count : 0;
}

CUdevice hami_current_ordinal(void)
{
    CUdevice ordinal;

    if (hami_inside || !hami_match_devices() || hami_real.cuCtxGetDevice(&ordinal) != CUDA_SUCCESS)
        return -1;
    return ordinal;
}

int hami_current_device(void)
{
    return hami_device_of_ordinal(hami_current_ordinal());
}

CUdevice hami_ordinal_of_stream(CUstream stream, bool is_per_thread)
{
    __typeof__(&cuStreamGetCtx) get_context =
        is_per_thread && HAMI_HAS(hami_real.cuStreamGetCtx_ptsz) ? hami_real.cuStreamGetCtx_ptsz : hami_real.cuStreamGetCtx;
    CUcontext context, popped;
    CUdevice ordinal;

    if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD)
        return hami_current_ordinal();
    if (hami_inside || !hami_match_devices() || HAMI_INSIDE(get_context(stream, &context)) != CUDA_SUCCESS ||
        HAMI_INSIDE(hami_real.cuCtxPushCurrent_v2(context)) != CUDA_SUCCESS)
        return -1;
    ordinal = hami_current_ordinal();
    HAMI_INSIDE(hami_real.cuCtxPopCurrent_v2(&popped));
    return ordinal;
}

int hami_device_of_stream(CUstream stream, bool is_per_thread)
{
    return hami_device_of_ordinal(hami_ordinal_of_stream(stream, is_per_thread));
}

int hami_nvml_device(nvmlDevice_t device)
{
    char uuid[HAMI_UUID_BYTES];

    if (hami_inside || !hami_start() || HAMI_INSIDE(HAMI_REAL_NVML(nvmlDeviceGetUUID)(device, uuid, sizeof(uuid))) != NVML_SUCCESS)
        return -1;
    return hami_region_device(uuid);
}

void hami_devices_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    atomic_store(&is_matched, false);
}
