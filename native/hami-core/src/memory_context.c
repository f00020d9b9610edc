#include "memory_context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "charges.h"
#include "hooks.h"
#include "limiter.h"
#include "liveness.h"
#include "log.h"
#include "memory.h"
#include "memory_pool.h"
#include "process.h"
#include "region.h"

enum { LISTED_MAX = 256 };

/* What a context can cost: less is noise, more is a neighbour's allocation. NVIDIA's take 100 to 600 MiB. */
#define CONTEXT_LEAST ((uint64_t)16 << 20)
#define CONTEXT_MOST ((uint64_t)1 << 30)

/* NVML's processes of one device. */
struct listing {
    unsigned int count;
    nvmlProcessInfo_v2_t processes[LISTED_MAX];
};

static struct {
    _Atomic int contexts;
    uint64_t each_bytes;      /* of one context, where NVML does not name this process */
    uint64_t context, module; /* as the region has them */
    uint64_t last_measured;   /* both together */
    _Atomic time_t measured_at;
} devices[HAMI_DEVICES_MAX];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool is_stale[HAMI_DEVICES_MAX];
static _Atomic unsigned int reported_pid; /* as NVML knows this process; 0: not found out */
static _Atomic bool is_nvml_ready;

/* NVML */

static bool nvml_device(int device, nvmlDevice_t *handle)
{
    if (!atomic_load(&is_nvml_ready)) {
        if (!hami_hooks_load(HAMI_LIBRARY_NVML) || !hami_real.nvmlInit_v2 || HAMI_INSIDE(hami_real.nvmlInit_v2()) != NVML_SUCCESS)
            return false;
        if (atomic_exchange(&is_nvml_ready, true) && hami_real.nvmlShutdown)
            HAMI_INSIDE(hami_real.nvmlShutdown());
    }
    return hami_real.nvmlDeviceGetHandleByUUID &&
           HAMI_INSIDE(hami_real.nvmlDeviceGetHandleByUUID(hami_region()->uuids[device], handle)) == NVML_SUCCESS;
}

static bool list_processes(int device, struct listing *listing)
{
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) list = hami_real.nvmlDeviceGetComputeRunningProcesses_v3;
    nvmlDevice_t handle;

    listing->count = 0;
    if (!nvml_device(device, &handle))
        return false;
    if (!list)
        list = hami_real.nvmlDeviceGetComputeRunningProcesses_v2;
    listing->count = LISTED_MAX;
    return list && HAMI_INSIDE(list(handle, &listing->count, listing->processes)) == NVML_SUCCESS;
}

static const nvmlProcessInfo_v2_t *find_process(const struct listing *listing, unsigned int pid)
{
    for (unsigned int index = 0; index < listing->count; index++)
        if (listing->processes[index].pid == pid)
            return &listing->processes[index];
    return NULL;
}

/*
 * This process is the only one that came with its own first context. Of two that came at once it is the one with the pid it knows
 * itself by, if that is among them; else they cannot be told apart.
 */
static void recognise(const struct listing *before, const struct listing *after)
{
    unsigned int found = 0, own = (unsigned int)getpid();

    if (find_process(after, own) && !find_process(before, own))
        found = own;

    for (unsigned int index = 0; index < after->count && found != own; index++) {
        unsigned int pid = after->processes[index].pid;

        if (find_process(before, pid))
            continue;
        if (found && found != pid)
            return;
        found = pid;
    }
    if (!found)
        return;
    atomic_store(&reported_pid, found);
    hami_region_state_host_pid((int32_t)found);
    hami_log(HAMI_LOG_DECISION, "NVML knows this process as %u", found);
}

/*
 * Bytes NVML counts for this process beyond its charges. Charges are made before and given back after the driver acts, so the answer
 * is never too large, and exact when nothing was charged meanwhile: else it is asked once more.
 */
static bool measure(int device, uint64_t *bytes)
{
    struct listing listing;

    for (int attempt = 0; attempt < 2; attempt++) {
        const nvmlProcessInfo_v2_t *self;
        uint64_t charged;

        hami_pools_refresh();
        charged = hami_region_own_data(device);

        if (!list_processes(device, &listing) || !(self = find_process(&listing, atomic_load(&reported_pid))) ||
            self->usedGpuMemory == UINT64_MAX)
            return false;
        *bytes = self->usedGpuMemory > charged ? self->usedGpuMemory - charged : 0;
        if (charged == hami_region_own_data(device))
            break;
    }
    return true;
}

static uint64_t card_used(int device)
{
    nvmlDevice_t handle;
    nvmlMemory_t memory;

    if (!nvml_device(device, &handle) || !hami_real.nvmlDeviceGetMemoryInfo ||
        HAMI_INSIDE(hami_real.nvmlDeviceGetMemoryInfo(handle, &memory)) != NVML_SUCCESS)
        return 0;
    return memory.used;
}

/* The account. The caller holds the mutex. */

static void state_locked(int device, uint64_t context, uint64_t module)
{
    devices[device].context = context;
    devices[device].module = module;
    hami_region_state_context(device, context);
    hami_region_state_module(device, module);
}

/* What a context cost, by the card's own use before and after: neighbours' allocations only add to it, so less is better known. */
static uint64_t estimate(int device, uint64_t card_before)
{
    uint64_t card_after = card_used(device);
    uint64_t bytes = card_after > card_before ? card_after - card_before : 0;
    uint64_t others = hami_region_least_context(device);

    if (bytes < CONTEXT_LEAST || bytes > CONTEXT_MOST)
        bytes = 0;
    if (others && (!bytes || others < bytes))
        bytes = others;
    return bytes;
}

/* A context came or went. */
static void count_contexts(int device)
{
    uint64_t measured;

    if (devices[device].contexts == 0)
        state_locked(device, 0, 0);
    else if (!atomic_load(&reported_pid) || !measure(device, &measured))
        state_locked(device, (uint64_t)devices[device].contexts * devices[device].each_bytes, devices[device].module);
    else
        state_locked(device, measured > devices[device].module ? measured - devices[device].module : 0, devices[device].module);
    devices[device].last_measured = devices[device].context + devices[device].module;
}

/* What NVML counted once may have been memory on its way back to the driver: it is believed gone when it is missing twice. */
static void count_modules(int device)
{
    uint64_t measured, bytes, context = devices[device].context;

    if (devices[device].contexts == 0 || !atomic_load(&reported_pid) || !measure(device, &measured))
        return;
    bytes = measured > devices[device].last_measured ? measured : devices[device].last_measured;
    devices[device].last_measured = measured;
    if (context > bytes)
        context = bytes;
    state_locked(device, context, bytes - context);
}

static void refresh(int device)
{
    pthread_mutex_lock(&mutex);
    atomic_store(&devices[device].measured_at, time(NULL));
    atomic_store(&is_stale[device], false);
    count_modules(device);
    pthread_mutex_unlock(&mutex);
}

void hami_context_refresh(int device)
{
    if (__builtin_expect(atomic_load_explicit(&is_stale[device], memory_order_relaxed), 0))
        refresh(device);
}

void hami_context_refresh_if_stale(int device)
{
    if (atomic_load(&reported_pid) && atomic_load(&devices[device].measured_at) != time(NULL))
        refresh(device);
}

void hami_context_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    memset((void *)devices, 0, sizeof(devices));
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        atomic_store(&is_stale[device], false);
    atomic_store(&reported_pid, 0);
    atomic_store(&is_nvml_ready, false);
}

/* Whether the container is within its limit with `more` bytes; the dead and what pools keep unused do not count. */
static bool is_within(int device, uint64_t more)
{
    uint64_t limit = hami_region_limit(device);

    if (!limit || hami_region_used(device) + more <= limit)
        return true;
    hami_region_sweep();
    hami_pools_trim(device);
    return hami_region_used(device) + more <= limit;
}

/* Making contexts */

struct before {
    struct listing listing;
    uint64_t card_used;
    CUcontext current;
};

static bool begin(int device, struct before *before)
{
    uint64_t expected = devices[device].each_bytes ? devices[device].each_bytes : hami_region_least_context(device);

    if (!is_within(device, expected)) {
        hami_log(HAMI_LOG_WARNING, "a context refused on device %d: %llu of %llu in use", device,
                 (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
        return false;
    }
    before->listing.count = 0;
    before->card_used = card_used(device);
    before->current = (CUcontext)(uintptr_t)hami_memory_owner();
    if (!atomic_load(&reported_pid) && !list_processes(device, &before->listing))
        before->listing.count = LISTED_MAX + 1;
    return true;
}

/* Charge for a new context; false when it passes the limit. */
static bool charge(int device, const struct before *before, CUcontext context)
{
    struct hami_charge made = {.key = (uint64_t)(uintptr_t)context, .device = (int16_t)device}, replaced;
    struct listing after;
    bool is_listed = !atomic_load(&reported_pid) && before->listing.count <= LISTED_MAX && list_processes(device, &after);

    pthread_mutex_lock(&mutex);
    if (is_listed)
        recognise(&before->listing, &after);
    if (!atomic_load(&reported_pid) && !devices[device].each_bytes)
        devices[device].each_bytes = estimate(device, before->card_used);
    devices[device].contexts++;
    count_contexts(device);
    pthread_mutex_unlock(&mutex);
    hami_charges_put(&hami_contexts, made, &replaced);
    return is_within(device, 0);
}

/* Forget a context that is gone. */
static void discharge(CUcontext context)
{
    struct hami_charge made;

    hami_memory_end_context(context);
    if (!hami_charges_take(&hami_contexts, (uint64_t)(uintptr_t)context, &made))
        return;
    pthread_mutex_lock(&mutex);
    devices[made.device].contexts--;
    count_contexts(made.device);
    pthread_mutex_unlock(&mutex);
}

#define CREATE(symbol, ordinal, is_wanted, call, undo)                                            \
    do {                                                                                          \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                        \
        int device = real && context && !hami_inside ? hami_process_device(ordinal) : -1;         \
        struct before before;                                                                     \
        CUresult result;                                                                          \
                                                                                                  \
        if (!real)                                                                                \
            return CUDA_ERROR_NOT_FOUND;                                                          \
        if (device < 0 || !(is_wanted))                                                           \
            return call;                                                                          \
        if (!begin(device, &before))                                                              \
            return CUDA_ERROR_OUT_OF_MEMORY;                                                      \
        result = HAMI_INSIDE(call);                                                               \
        if (result != CUDA_SUCCESS || charge(device, &before, *context))                          \
            return result;                                                                        \
        HAMI_INSIDE(undo);                                                                        \
        if (hami_real.cuCtxSetCurrent)                                                            \
            HAMI_INSIDE(hami_real.cuCtxSetCurrent(before.current));                               \
        discharge(*context);                                                                      \
        *context = NULL;                                                                          \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                          \
    } while (0)

#define DESTROY_AGAIN (hami_real.cuCtxDestroy_v2 ? hami_real.cuCtxDestroy_v2(*context) : CUDA_ERROR_NOT_FOUND)

HAMI_EXPORT CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v2, ordinal, true, real(context, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinities, int count, unsigned int flags,
                                    CUdevice ordinal)
{
    CREATE(cuCtxCreate_v3, ordinal, true, real(context, affinities, count, flags, ordinal), DESTROY_AGAIN);
}

HAMI_EXPORT CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice ordinal)
{
    CREATE(cuCtxCreate_v4, ordinal, true, real(context, params, flags, ordinal), DESTROY_AGAIN);
}

static bool primary_is_active(CUdevice ordinal)
{
    unsigned int flags;
    int active = 0;

    return hami_real.cuDevicePrimaryCtxGetState &&
           HAMI_INSIDE(hami_real.cuDevicePrimaryCtxGetState(ordinal, &flags, &active)) == CUDA_SUCCESS && active;
}

static CUresult release_primary(CUdevice ordinal)
{
    return hami_real.cuDevicePrimaryCtxRelease_v2 ? hami_real.cuDevicePrimaryCtxRelease_v2(ordinal) : CUDA_ERROR_NOT_FOUND;
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice ordinal)
{
    CREATE(cuDevicePrimaryCtxRetain, ordinal, !primary_is_active(ordinal), real(context, ordinal), release_primary(ordinal));
}

/* Ending contexts, which frees what was allocated in them */

#define DESTROY(symbol)                                    \
    do {                                                   \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol); \
        CUresult result;                                   \
                                                           \
        if (!real)                                         \
            return CUDA_ERROR_NOT_FOUND;                   \
        hami_limiter_end_context(context);                 \
        result = HAMI_INSIDE(real(context));               \
        if (result == CUDA_SUCCESS && !hami_inside)        \
            discharge(context);                            \
        return result;                                     \
    } while (0)

HAMI_EXPORT CUresult cuCtxDestroy(CUcontext context)
{
    DESTROY(cuCtxDestroy);
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    DESTROY(cuCtxDestroy_v2);
}

/* The handle of a primary context that is active, without keeping it. */
static CUcontext primary_of(CUdevice ordinal)
{
    CUcontext context = NULL;

    if (hami_inside || !hami_real.cuDevicePrimaryCtxRetain || !primary_is_active(ordinal) ||
        HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRetain(&context, ordinal)) != CUDA_SUCCESS)
        return NULL;
    HAMI_INSIDE(release_primary(ordinal));
    return context;
}

/* A reset empties a primary context, the last release ends it; whether a reset also ends it is the driver's to say. */
static void settle_primary(CUdevice ordinal, CUcontext context, bool is_emptied)
{
    bool is_ended = !primary_is_active(ordinal);

    if (!is_emptied && !is_ended)
        return;
    hami_memory_end_context(context);
    hami_pools_end_device(hami_process_device(ordinal));
    if (is_ended)
        discharge(context);
}

#define END_PRIMARY(symbol, is_emptied)                        \
    do {                                                       \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);     \
        CUcontext context;                                     \
        CUresult result;                                       \
                                                               \
        if (!real)                                             \
            return CUDA_ERROR_NOT_FOUND;                       \
        context = primary_of(ordinal);                         \
        hami_limiter_end_context(context);                     \
        result = HAMI_INSIDE(real(ordinal));                   \
        if (result == CUDA_SUCCESS && context)                 \
            settle_primary(ordinal, context, is_emptied);      \
        return result;                                         \
    } while (0)

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, false);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, true);
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice ordinal)
{
    END_PRIMARY(cuDevicePrimaryCtxReset, true);
}

/* Modules, libraries and limits of the device's heaps: how much they take only NVML can tell */

static void note(void)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        if (devices[device].contexts)
            atomic_store_explicit(&is_stale[device], true, memory_order_relaxed);
}

/* What NVML counted before does not bind any more: something is known to have gone. */
static CUresult note_end(CUresult result)
{
    if (result != CUDA_SUCCESS || hami_inside)
        return result;
    pthread_mutex_lock(&mutex);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        devices[device].last_measured = 0;
    pthread_mutex_unlock(&mutex);
    note();
    return result;
}

/* What a module takes is known when it is there: if that passes the limit it is unloaded again. */
static CUresult settle_module(CUresult result, CUmodule *module)
{
    int device = result == CUDA_SUCCESS ? hami_process_current_device() : -1;

    if (device < 0)
        return result;
    note();
    if (!hami_region_limit(device))
        return result;
    hami_context_refresh(device);
    if (is_within(device, 0) || !hami_real.cuModuleUnload)
        return result;
    note_end(HAMI_INSIDE(hami_real.cuModuleUnload(*module)));
    *module = NULL;
    hami_log(HAMI_LOG_WARNING, "a module refused on device %d", device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

#define LOAD(symbol, ...)                                                             \
    do {                                                                              \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                            \
                                                                                      \
        return real ? settle_module(real(module, __VA_ARGS__), module) : CUDA_ERROR_NOT_FOUND; \
    } while (0)

HAMI_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *path)
{
    LOAD(cuModuleLoad, path);
}

HAMI_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    LOAD(cuModuleLoadData, image);
}

HAMI_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values)
{
    LOAD(cuModuleLoadDataEx, image, count, options, values);
}

HAMI_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *binary)
{
    LOAD(cuModuleLoadFatBinary, binary);
}

#define END(symbol, ...)                                                           \
    do {                                                                           \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                         \
                                                                                   \
        return real ? note_end(real(__VA_ARGS__)) : CUDA_ERROR_NOT_FOUND;          \
    } while (0)

HAMI_EXPORT CUresult cuModuleUnload(CUmodule module)
{
    END(cuModuleUnload, module);
}

HAMI_EXPORT CUresult cuLibraryUnload(CUlibrary library)
{
    END(cuLibraryUnload, library);
}

HAMI_EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
    END(cuCtxSetLimit, limit, value);
}
