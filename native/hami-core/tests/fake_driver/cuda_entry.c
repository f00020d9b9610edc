/*
 * How the fake driver's symbols are found by name and version, as cuGetProcAddress of a real one does.
 *
 * A row is (base name, first CUDA version, stream class, symbol). The newest row not newer than the version asked for, and not newer
 * than the driver (FAKE_DRIVER_CUDA_VERSION, default 12080), is the answer; per-thread rows answer only to that flag.
 * FAKE_DRIVER_PRIVATE_ENTRIES=1 answers the memory and launch calls with pointers that differ from the exported symbols.
 * Source: CUDA Driver API, "Driver Entry Point Access".
 */
#include <stdlib.h>
#include <string.h>

#include "cuda_fake.h"

enum stream_class { ANY, PER_THREAD };

struct entry {
    const char *name;
    int since;
    enum stream_class streams;
    void *function;
};

#define ROW(name, since) {#name, since, ANY, (void *)name}
#define ROW_AS(name, since, symbol) {#name, since, ANY, (void *)symbol}
#define ROW_PER_THREAD(name, since) {#name, since, PER_THREAD, (void *)name##_ptsz}

static const struct entry entries[] = {
    ROW(cuInit, 2000),
    ROW(cuDriverGetVersion, 2020),
    ROW(cuGetErrorName, 6000),
    ROW(cuGetErrorString, 6000),
    ROW(cuGetExportTable, 3000),
    ROW(cuGetProcAddress, 11030),
    ROW_AS(cuGetProcAddress, 12000, cuGetProcAddress_v2),
    ROW(cuDeviceGet, 2000),
    ROW(cuDeviceGetCount, 2000),
    ROW(cuDeviceGetName, 2000),
    ROW(cuDeviceGetUuid, 9020),
    ROW_AS(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    ROW(cuDeviceGetAttribute, 2000),
    ROW(cuDeviceGetPCIBusId, 4010),
    ROW(cuDeviceComputeCapability, 2000),
    ROW(cuDeviceTotalMem, 2000),
    ROW_AS(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    ROW(cuDevicePrimaryCtxRetain, 7000),
    ROW(cuDevicePrimaryCtxRelease, 7000),
    ROW_AS(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    ROW_AS(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2),
    ROW(cuDevicePrimaryCtxGetState, 7000),
    ROW_AS(cuCtxCreate, 3020, cuCtxCreate_v2),
    ROW_AS(cuCtxDestroy, 4000, cuCtxDestroy_v2),
    ROW(cuCtxGetCurrent, 4000),
    ROW(cuCtxSetCurrent, 4000),
    ROW_AS(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    ROW_AS(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    ROW(cuCtxGetDevice, 2000),
    ROW(cuCtxSynchronize, 2000),
    ROW(cuMemGetInfo, 2000),
    ROW_AS(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    ROW(cuMemAlloc, 2000),
    ROW_AS(cuMemAlloc, 3020, cuMemAlloc_v2),
    ROW(cuMemAllocPitch, 2000),
    ROW_AS(cuMemAllocPitch, 3020, cuMemAllocPitch_v2),
    ROW(cuMemAllocManaged, 6000),
    ROW(cuMemFree, 2000),
    ROW_AS(cuMemFree, 3020, cuMemFree_v2),
    ROW(cuMemAllocAsync, 11020),
    ROW_PER_THREAD(cuMemAllocAsync, 11020),
    ROW(cuMemAllocFromPoolAsync, 11020),
    ROW_PER_THREAD(cuMemAllocFromPoolAsync, 11020),
    ROW(cuMemFreeAsync, 11020),
    ROW_PER_THREAD(cuMemFreeAsync, 11020),
    ROW(cuMemPoolCreate, 11020),
    ROW(cuMemPoolDestroy, 11020),
    ROW(cuMemCreate, 10020),
    ROW(cuMemRelease, 10020),
    ROW(cuMemRetainAllocationHandle, 11000),
    ROW(cuMemAddressReserve, 10020),
    ROW(cuMemAddressFree, 10020),
    ROW(cuMemMap, 10020),
    ROW(cuMemUnmap, 10020),
    ROW_AS(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
    ROW_AS(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
    ROW_AS(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
    ROW_AS(cuMemsetD8, 3020, cuMemsetD8_v2),
    ROW_AS(cuMemsetD32, 3020, cuMemsetD32_v2),
    ROW(cuModuleLoadData, 2000),
    ROW(cuModuleUnload, 2000),
    ROW(cuModuleGetFunction, 2000),
    ROW(cuStreamCreate, 2000),
    ROW_AS(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    ROW(cuStreamQuery, 2000),
    ROW(cuStreamSynchronize, 2000),
    ROW(cuStreamWaitEvent, 3020),
    ROW(cuStreamGetCtx, 9020),
    ROW_PER_THREAD(cuStreamGetCtx, 9020),
    ROW(cuStreamIsCapturing, 10000),
    ROW_PER_THREAD(cuStreamIsCapturing, 10000),
    ROW_AS(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
    ROW(cuStreamEndCapture, 10000),
    ROW(cuEventCreate, 2000),
    ROW_AS(cuEventDestroy, 4000, cuEventDestroy_v2),
    ROW(cuEventRecord, 2000),
    ROW_PER_THREAD(cuEventRecord, 7000),
    ROW(cuEventQuery, 2000),
    ROW(cuEventSynchronize, 2000),
    ROW(cuEventElapsedTime, 2000),
    ROW(cuLaunch, 2000),
    ROW(cuLaunchGrid, 2000),
    ROW(cuLaunchGridAsync, 2000),
    ROW(cuLaunchKernel, 4000),
    ROW_PER_THREAD(cuLaunchKernel, 7000),
    ROW(cuLaunchKernelEx, 11060),
    ROW_PER_THREAD(cuLaunchKernelEx, 11060),
    ROW(cuLaunchCooperativeKernel, 9000),
    ROW_PER_THREAD(cuLaunchCooperativeKernel, 9000),
    ROW(cuLaunchCooperativeKernelMultiDevice, 9000),
    ROW(cuGraphCreate, 10000),
    ROW_AS(cuGraphInstantiate, 11040, cuGraphInstantiateWithFlags),
    ROW(cuGraphInstantiateWithFlags, 11040),
    ROW(cuGraphLaunch, 10000),
    ROW_PER_THREAD(cuGraphLaunch, 10000),
    ROW(cuGraphExecDestroy, 10000),
    ROW(cuGraphDestroy, 10000),
};

/* Entries as a driver may keep them beside its exported symbols: same behaviour, other addresses. */

static CUresult private_alloc(CUdeviceptr *pointer, size_t bytes)
{
    return cuMemAlloc_v2(pointer, bytes);
}

static CUresult private_free(CUdeviceptr pointer)
{
    return cuMemFree_v2(pointer);
}

static void *private_entry(void *function)
{
    const char *setting = getenv("FAKE_DRIVER_PRIVATE_ENTRIES");

    if (!setting || strcmp(setting, "1") != 0)
        return function;
    if (function == (void *)cuMemAlloc_v2)
        return (void *)private_alloc;
    return function == (void *)cuMemFree_v2 ? (void *)private_free : function;
}

static const struct entry *newest(const char *name, int version, enum stream_class streams)
{
    const struct entry *best = NULL;

    for (size_t index = 0; index < sizeof(entries) / sizeof(entries[0]); index++) {
        const struct entry *entry = &entries[index];

        if (entry->streams == streams && entry->since <= version && (!best || entry->since > best->since) &&
            strcmp(entry->name, name) == 0)
            best = entry;
    }
    return best;
}

API CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                                 CUdriverProcAddressQueryResult *status)
{
    const struct entry *entry = NULL;
    int driver;

    if (!symbol || !function || flags > CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    cuDriverGetVersion(&driver);
    version = version < driver ? version : driver;
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)
        entry = newest(symbol, version, PER_THREAD);
    if (!entry)
        entry = newest(symbol, version, ANY);
    *function = entry ? private_entry(entry->function) : NULL;
    if (status && entry)
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    else if (status)
        *status = newest(symbol, driver, ANY) ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return entry ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
