#include "own_process.h"

#include <stdatomic.h>
#include <unistd.h>

#include "hooks.h"
#include "log.h"
#include "region.h"
#include "region_map.h"

static _Atomic unsigned int reported_pid; /* 0: unknown */
static _Atomic bool is_ready;

static bool nvml_device(int device, nvmlDevice_t *handle)
{
    if (!atomic_load(&is_ready)) {
        if (!hami_hooks_load(HAMI_LIBRARY_NVML) || HAMI_INSIDE(hami_real.nvmlInit_v2()) != NVML_SUCCESS)
            return false;
        if (atomic_exchange(&is_ready, true))
            HAMI_INSIDE(hami_real.nvmlShutdown());
    }
    return HAMI_INSIDE(hami_real.nvmlDeviceGetHandleByUUID(hami_region()->uuids[device], handle)) == NVML_SUCCESS;
}

static const nvmlProcessInfo_v2_t *find_process(const struct hami_nvml_processes *listing, unsigned int pid)
{
    for (unsigned int index = 0; index < listing->count; index++)
        if (listing->list[index].pid == pid)
            return &listing->list[index];
    return NULL;
}

/*
 * Add the clients of an MPS server, which some drivers list apart from the server. A driver without such a list has no clients that
 * it can tell apart.
 */
static void add_clients(nvmlDevice_t handle, struct hami_nvml_processes *listing)
{
    nvmlProcessInfo_v2_t clients[HAMI_NVML_PROCESSES_MAX];
    unsigned int count = HAMI_NVML_PROCESSES_MAX;

    if (HAMI_INSIDE(hami_real.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle, &count, clients)) != NVML_SUCCESS)
        return;
    for (unsigned int index = 0; index < count && listing->count < HAMI_NVML_PROCESSES_MAX; index++)
        if (!find_process(listing, clients[index].pid))
            listing->list[listing->count++] = clients[index];
}

bool hami_nvml_list(int device, struct hami_nvml_processes *listing)
{
    __typeof__(&nvmlDeviceGetComputeRunningProcesses_v3) list = hami_real.nvmlDeviceGetComputeRunningProcesses_v3;
    nvmlDevice_t handle;

    listing->count = 0;
    if (!nvml_device(device, &handle))
        return false;
    if (!HAMI_HAS(list))
        list = hami_real.nvmlDeviceGetComputeRunningProcesses_v2;
    listing->count = HAMI_NVML_PROCESSES_MAX;
    if (HAMI_INSIDE(list(handle, &listing->count, listing->list)) != NVML_SUCCESS)
        return false;
    add_clients(handle, listing);
    return true;
}

static void become(unsigned int pid)
{
    atomic_store(&reported_pid, pid);
    hami_region_store_host_pid((int32_t)pid);
    hami_log(HAMI_LOG_DECISION, "NVML lists this process as pid %u", pid);
}

/* If several processes appeared, it is the one with the pid that getpid() returns, if there is such a one. */
void hami_nvml_recognise(int device, const struct hami_nvml_processes *before, const struct hami_nvml_processes *after)
{
    unsigned int own = (unsigned int)getpid(), found;

    found = find_process(after, own) && !find_process(before, own) ? own : hami_candidates_meet(device, before, after);
    if (found)
        become(found);
}

bool hami_nvml_look_for_self(int device, uint64_t charged_bytes, bool (*is_unchanged)(const void *), const void *arguments)
{
    struct hami_nvml_processes listing;
    unsigned int found;

    if (!hami_candidates_are_due(device, charged_bytes) || !hami_nvml_list(device, &listing) || !is_unchanged(arguments))
        return false;
    found = hami_candidates_look(device, &listing, charged_bytes);
    if (found)
        become(found);
    return found != 0;
}

uint64_t hami_nvml_device_used(int device)
{
    nvmlDevice_t handle;
    nvmlMemory_t memory;

    if (!nvml_device(device, &handle) || HAMI_INSIDE(hami_real.nvmlDeviceGetMemoryInfo(handle, &memory)) != NVML_SUCCESS)
        return 0;
    return memory.used;
}

bool hami_nvml_is_recognised(void)
{
    return atomic_load(&reported_pid) != 0;
}

bool hami_nvml_own_bytes(int device, uint64_t *bytes)
{
    struct hami_nvml_processes listing;
    const nvmlProcessInfo_v2_t *self;

    if (!hami_nvml_is_recognised() || !hami_nvml_list(device, &listing) ||
        !(self = find_process(&listing, atomic_load(&reported_pid))) || self->usedGpuMemory == UINT64_MAX)
        return false;
    *bytes = self->usedGpuMemory;
    return true;
}

void hami_own_process_forget(void)
{
    atomic_store(&reported_pid, 0);
    atomic_store(&is_ready, false);
    hami_candidates_forget();
}
