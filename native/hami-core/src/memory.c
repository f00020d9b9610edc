#include "memory.h"

#include "hooks.h"
#include "log.h"
#include "process.h"
#include "region.h"

/* The least the driver hands out. Source: CUDA Programming Guide, alignment of device memory (256), and cuMemAllocPitch's 512. */
#define UNIT 512u

CUresult hami_memory_charge(int device, size_t bytes, uint64_t *charged)
{
    uint64_t rounded = ((uint64_t)bytes + UNIT - 1) & ~(uint64_t)(UNIT - 1);

    if (rounded < bytes || !hami_region_charge(device, rounded)) {
        hami_log(HAMI_LOG_WARNING, "%zu bytes refused on device %d: %llu of %llu in use", bytes, device,
                 (unsigned long long)hami_region_used(device), (unsigned long long)hami_region()->limit[device]);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *charged = rounded;
    return CUDA_SUCCESS;
}

void hami_memory_discharge(const struct hami_charge *charge)
{
    hami_region_discharge(charge->device, charge->bytes);
}

bool hami_memory_remember(struct hami_charges *charges, struct hami_charge charge)
{
    struct hami_charge replaced;

    if (!hami_charges_put(charges, charge, &replaced)) {
        hami_memory_discharge(&charge);
        return false;
    }
    if (replaced.key)
        hami_memory_discharge(&replaced);
    return true;
}

static uint64_t current_context(void)
{
    CUcontext context = NULL;

    if (hami_real.cuCtxGetCurrent)
        hami_real.cuCtxGetCurrent(&context);
    return (uint64_t)(uintptr_t)context;
}

static CUresult free_again(CUdeviceptr pointer)
{
    if (hami_real.cuMemFree_v2)
        HAMI_INSIDE(hami_real.cuMemFree_v2(pointer));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Settle a charge once the driver has answered: keep it under the pointer, or give it back. */
static CUresult settle(CUresult result, CUdeviceptr pointer, int device, uint64_t charged)
{
    struct hami_charge charge = {.key = pointer, .bytes = charged, .device = device};

    if (result != CUDA_SUCCESS || !pointer) {
        hami_memory_discharge(&charge);
        return result;
    }
    charge.owner = current_context();
    return hami_memory_remember(&hami_pointers, charge) ? CUDA_SUCCESS : free_again(pointer);
}

/* The body of an allocation on the current device: `call` is the driver's, `pointer` where it leaves its answer. */
#define ALLOCATE(symbol, bytes, pointer, call)                                       \
    do {                                                                             \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                           \
        int device = real && (bytes) && (pointer) ? hami_process_current_device() : -1; \
        uint64_t charged;                                                            \
        CUresult result;                                                             \
                                                                                     \
        if (!real)                                                                   \
            return CUDA_ERROR_NOT_FOUND;                                             \
        if (device < 0)                                                              \
            return call;                                                             \
        result = hami_memory_charge(device, (bytes), &charged);                      \
        if (result != CUDA_SUCCESS)                                                  \
            return result;                                                           \
        result = HAMI_INSIDE(call);                                                  \
        return settle(result, result == CUDA_SUCCESS ? *(pointer) : 0, device, charged); \
    } while (0)

HAMI_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    ALLOCATE(cuMemAlloc_v2, bytes, pointer, real(pointer, bytes));
}

HAMI_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    ALLOCATE(cuMemAlloc, bytes, pointer, real(pointer, bytes));
}

HAMI_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    ALLOCATE(cuMemAllocManaged, bytes, pointer, real(pointer, bytes, flags));
}

/* A pitch is the driver's choice: charge for the least it can be, then for what it was. */
static CUresult settle_pitch(CUresult result, CUdeviceptr pointer, size_t bytes, int device, uint64_t charged)
{
    uint64_t more = 0;

    if (result == CUDA_SUCCESS && bytes > charged && hami_memory_charge(device, bytes - charged, &more) != CUDA_SUCCESS) {
        hami_memory_discharge(&(struct hami_charge){.device = device, .bytes = charged});
        return free_again(pointer);
    }
    return settle(result, pointer, device, charged + more);
}

static size_t least_bytes(size_t width, size_t height)
{
    size_t bytes;

    return __builtin_mul_overflow(width, height, &bytes) ? SIZE_MAX : bytes;
}

HAMI_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                        unsigned int element_bytes)
{
    __typeof__(&cuMemAllocPitch_v2) real = HAMI_REAL_CUDA(cuMemAllocPitch_v2);
    int device = real && pointer && pitch && width && height ? hami_process_current_device() : -1;
    uint64_t charged;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (device < 0)
        return real(pointer, pitch, width, height, element_bytes);
    result = hami_memory_charge(device, least_bytes(width, height), &charged);
    if (result != CUDA_SUCCESS)
        return result;
    result = HAMI_INSIDE(real(pointer, pitch, width, height, element_bytes));
    return settle_pitch(result, *pointer, *pitch * height, device, charged);
}

HAMI_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                                     unsigned int element_bytes)
{
    __typeof__(&cuMemAllocPitch) real = HAMI_REAL_CUDA(cuMemAllocPitch);
    int device = real && pointer && pitch && width && height ? hami_process_current_device() : -1;
    uint64_t charged;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    if (device < 0)
        return real(pointer, pitch, width, height, element_bytes);
    result = hami_memory_charge(device, least_bytes(width, height), &charged);
    if (result != CUDA_SUCCESS)
        return result;
    result = HAMI_INSIDE(real(pointer, pitch, width, height, element_bytes));
    return settle_pitch(result, *pointer, (size_t)*pitch * height, device, charged);
}

/* A pointer this library does not know goes to the driver all the same: its answer is the program's. */
#define FREE(symbol, pointer)                                                              \
    do {                                                                                   \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                 \
        struct hami_charge taken;                                                          \
        bool is_known;                                                                     \
        CUresult result;                                                                   \
                                                                                           \
        if (!real)                                                                         \
            return CUDA_ERROR_NOT_FOUND;                                                   \
        if (hami_inside || !(pointer))                                                     \
            return real(pointer);                                                          \
        is_known = hami_charges_take(&hami_pointers, (pointer), &taken);                   \
        result = HAMI_INSIDE(real(pointer));                                               \
        if (is_known && result == CUDA_SUCCESS)                                            \
            hami_memory_discharge(&taken);                                                 \
        else if (is_known)                                                                 \
            hami_memory_remember(&hami_pointers, taken);                                   \
        return result;                                                                     \
    } while (0)

HAMI_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    FREE(cuMemFree_v2, pointer);
}

HAMI_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    FREE(cuMemFree, pointer);
}

/* The end of a context frees what was allocated in it */

static void forget_context(CUcontext context)
{
    if (context)
        hami_charges_take_owned(&hami_pointers, (uint64_t)(uintptr_t)context, hami_memory_discharge);
}

HAMI_EXPORT CUresult cuCtxDestroy_v2(CUcontext context)
{
    __typeof__(&cuCtxDestroy_v2) real = HAMI_REAL_CUDA(cuCtxDestroy_v2);
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    result = HAMI_INSIDE(real(context));
    if (result == CUDA_SUCCESS && !hami_inside)
        forget_context(context);
    return result;
}

static bool primary_is_active(CUdevice device)
{
    unsigned int flags;
    int active = 0;

    return hami_real.cuDevicePrimaryCtxGetState &&
           HAMI_INSIDE(hami_real.cuDevicePrimaryCtxGetState(device, &flags, &active)) == CUDA_SUCCESS && active;
}

/* The handle of a primary context that is active, without keeping it; `release` undoes the look. */
static CUcontext primary_of(CUdevice device, __typeof__(&cuDevicePrimaryCtxRelease_v2) release)
{
    CUcontext context = NULL;

    if (hami_inside || !release || !hami_real.cuDevicePrimaryCtxRetain || !primary_is_active(device))
        return NULL;
    if (HAMI_INSIDE(hami_real.cuDevicePrimaryCtxRetain(&context, device)) != CUDA_SUCCESS)
        return NULL;
    HAMI_INSIDE(release(device));
    return context;
}

#define END_PRIMARY(symbol, device, is_ended)                                                   \
    do {                                                                                        \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                      \
        CUcontext context;                                                                      \
        CUresult result;                                                                        \
                                                                                                \
        if (!real)                                                                              \
            return CUDA_ERROR_NOT_FOUND;                                                        \
        context = primary_of(device, hami_real.cuDevicePrimaryCtxRelease_v2);                   \
        result = HAMI_INSIDE(real(device));                                                     \
        if (result == CUDA_SUCCESS && context && (is_ended))                                    \
            forget_context(context);                                                            \
        return result;                                                                          \
    } while (0)

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease_v2, device, !primary_is_active(device));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxRelease, device, !primary_is_active(device));
}

HAMI_EXPORT CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    END_PRIMARY(cuDevicePrimaryCtxReset_v2, device, true);
}
