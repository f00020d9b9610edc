#include "memory.h"

#include <stdatomic.h>

#include "hooks.h"
#include "log.h"
#include "memory_graph.h"
#include "memory_overhead.h"
#include "memory_pool.h"
#include "options.h"
#include "process.h"
#include "region.h"

/*
 * The driver's own sizes: units of 512 bytes, packed into blocks of 2 MiB below 1 MiB. Source: CUDA Programming Guide (alignment of
 * device memory), and cuMemGetInfo before and after allocations of each size.
 */
#define UNIT 512u
#define SMALL ((uint64_t)1 << 20)
#define BLOCK HAMI_MEMORY_BLOCK

struct hami_memory_changes hami_memory_changes[HAMI_DEVICES_MAX + 1];
_Thread_local int hami_memory_own_change __attribute__((tls_model("initial-exec"))) = HAMI_NO_CHANGE;

static _Atomic uint64_t small_bytes[HAMI_DEVICES_MAX];

void hami_memory_pause_change(void)
{
    if (hami_memory_own_change != HAMI_NO_CHANGE)
        atomic_fetch_add(&hami_memory_changes[hami_memory_own_change].ended, 1);
}

void hami_memory_resume_change(void)
{
    if (hami_memory_own_change != HAMI_NO_CHANGE)
        atomic_fetch_add(&hami_memory_changes[hami_memory_own_change].begun, 1);
}

static uint32_t changes_begun(int device)
{
    return atomic_load(&hami_memory_changes[device].begun) + atomic_load(&hami_memory_changes[HAMI_ANY_DEVICE].begun);
}

/* Ends are read first: whoever begins in between makes the answer false. */
bool hami_memory_is_settled(int device, uint32_t *changes)
{
    uint32_t ended = atomic_load(&hami_memory_changes[device].ended) + atomic_load(&hami_memory_changes[HAMI_ANY_DEVICE].ended);

    *changes = changes_begun(device);
    return *changes == ended;
}

bool hami_memory_is_unchanged(int device, uint32_t changes)
{
    return changes_begun(device) == changes;
}

static uint64_t rounded(uint64_t bytes, uint64_t unit)
{
    return bytes > UINT64_MAX - unit ? UINT64_MAX : (bytes + unit - 1) / unit * unit;
}

uint64_t hami_memory_blocks(uint64_t bytes)
{
    return rounded(bytes, BLOCK);
}

/* Blocks for the small are charged by whoever needs the next one, and given back by whoever empties the last. */
static bool take_small(int device, uint64_t bytes)
{
    uint64_t before = atomic_load(&small_bytes[device]);

    for (;;) {
        uint64_t grown = rounded(before + bytes, BLOCK) - rounded(before, BLOCK);

        if (grown && !hami_region_charge(device, grown))
            return false;
        if (atomic_compare_exchange_strong(&small_bytes[device], &before, before + bytes))
            return true;
        hami_region_discharge(device, grown);
    }
}

static void give_small(int device, uint64_t bytes)
{
    uint64_t before = atomic_fetch_sub(&small_bytes[device], bytes);

    hami_region_discharge(device, rounded(before, BLOCK) - rounded(before - bytes, BLOCK));
}

static bool take(int device, uint64_t bytes)
{
    return bytes < SMALL ? take_small(device, rounded(bytes, UNIT)) : hami_region_charge(device, rounded(bytes, BLOCK));
}

CUresult hami_memory_charge(int device, size_t bytes)
{
    hami_overhead_refresh(device);
    if (take(device, bytes) || (hami_overhead_make_room(device) && take(device, bytes)))
        return CUDA_SUCCESS;
    hami_log(HAMI_LOG_WARNING, "%zu bytes refused on device %d: %llu of %llu in use", bytes, device,
             (unsigned long long)hami_region_used(device), (unsigned long long)hami_region_limit(device));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

void hami_memory_discharge(const struct hami_charge *charge)
{
    if (charge->kind == HAMI_MEMORY_POOLED)
        hami_pool_drop(charge->owner);
    else if (charge->bytes < SMALL)
        give_small(charge->device, rounded(charge->bytes, UNIT));
    else
        hami_region_discharge(charge->device, rounded(charge->bytes, BLOCK));
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

void hami_memory_settle_end(struct hami_charges *charges, const struct hami_charge *taken, CUresult result)
{
    if (!taken->key)
        return;
    if (result == CUDA_SUCCESS)
        hami_memory_discharge(taken);
    else
        hami_memory_remember(charges, *taken);
}

uint64_t hami_memory_owner(void)
{
    CUcontext context = NULL;

    if (hami_real.cuCtxGetCurrent)
        hami_real.cuCtxGetCurrent(&context);
    return (uint64_t)(uintptr_t)context;
}

void hami_memory_end_context(CUcontext context)
{
    hami_charges_take_owned(&hami_pointers, (uint64_t)(uintptr_t)context, hami_memory_discharge);
    hami_charges_take_owned(&hami_arrays, (uint64_t)(uintptr_t)context, hami_memory_discharge);
}

void hami_memory_forget(void)
{
    static struct hami_charges *const tables[] = {&hami_pointers, &hami_handles, &hami_mappings, &hami_pools,
                                                  &hami_graphs,   &hami_arrays,  &hami_imports,  &hami_contexts,
                                                  &hami_greens};

    for (size_t index = 0; index < sizeof(tables) / sizeof(tables[0]); index++)
        hami_charges_forget(tables[index]);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        atomic_store(&small_bytes[device], 0);
    for (int device = 0; device <= HAMI_ANY_DEVICE; device++) {
        atomic_store(&hami_memory_changes[device].begun, 0);
        atomic_store(&hami_memory_changes[device].ended, 0);
    }
    hami_memory_own_change = HAMI_NO_CHANGE;
    hami_graph_forget();
    hami_memory_forget_contexts();
    hami_pools_forget();
    hami_overhead_forget();
}

static CUresult free_again(CUdeviceptr pointer)
{
    if (hami_real.cuMemFree_v2)
        HAMI_INSIDE(hami_real.cuMemFree_v2(pointer));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Settle a charge once the driver has answered: keep it under the pointer, or give it back. */
static CUresult settle(CUresult result, CUdeviceptr pointer, struct hami_charge charge)
{
    charge.key = pointer;
    if (result != CUDA_SUCCESS || !pointer) {
        hami_memory_discharge(&charge);
        return result;
    }
    charge.owner = hami_memory_owner();
    return hami_memory_remember(&hami_pointers, charge) ? CUDA_SUCCESS : free_again(pointer);
}

/*
 * The body of an allocation on the current device: `call` is the driver's, `pointer` where it leaves its answer, `charged` the bytes
 * to charge for `bytes`; `substitute` may try something else when the driver has no room.
 */
#define ALLOCATE(symbol, charged, pointer, call, substitute)                                 \
    do {                                                                                     \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                   \
        struct hami_charge charge = {.bytes = (charged)};                                    \
        bool is_substitute = false;                                                          \
        int device = real && charge.bytes && (pointer) ? hami_process_current_device() : -1; \
        CUresult result;                                                                     \
                                                                                             \
        if (!real)                                                                           \
            return CUDA_ERROR_NOT_FOUND;                                                     \
        if (device < 0)                                                                      \
            return call;                                                                     \
        HAMI_CHANGING(device);                                                               \
        charge.device = (int16_t)device;                                                     \
        result = hami_memory_charge(device, charge.bytes);                                   \
        if (result != CUDA_SUCCESS)                                                          \
            return result;                                                                   \
        result = HAMI_INSIDE(call);                                                          \
        if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0))                         \
            result = substitute;                                                             \
        charge.kind = is_substitute ? HAMI_MEMORY_SUBSTITUTE : HAMI_MEMORY_PLAIN;            \
        return settle(result, result == CUDA_SUCCESS ? *(pointer) : 0, charge);              \
    } while (0)

#define NOTHING_ELSE ((void)is_substitute, result)

HAMI_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    ALLOCATE(cuMemAlloc_v2, bytes, pointer, real(pointer, bytes), hami_memory_substitute(result, pointer, bytes, &is_substitute));
}

HAMI_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    ALLOCATE(cuMemAlloc, bytes, pointer, real(pointer, bytes), NOTHING_ELSE);
}

/* Managed memory has blocks of its own, however small it is. */
HAMI_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    ALLOCATE(cuMemAllocManaged, hami_memory_blocks(bytes), pointer, real(pointer, bytes, flags), NOTHING_ELSE);
}

/*
 * A pitch is the driver's choice: what is charged first is what it takes when rows begin at multiples of 512 bytes, as the driver
 * has it; should it choose otherwise, the difference is settled afterwards.
 */
static uint64_t pitched(size_t width, size_t height)
{
    uint64_t bytes;

    return __builtin_mul_overflow(rounded(width, UNIT), height, &bytes) ? UINT64_MAX : bytes;
}

static CUresult settle_pitch(CUresult result, CUdeviceptr pointer, uint64_t bytes, struct hami_charge charge)
{
    if (result != CUDA_SUCCESS || bytes == charge.bytes)
        return settle(result, pointer, charge);
    hami_memory_discharge(&charge);
    charge.bytes = bytes;
    if (hami_memory_charge(charge.device, bytes) != CUDA_SUCCESS)
        return free_again(pointer);
    return settle(result, pointer, charge);
}

static CUresult substitute_pitch(CUresult result, CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                 struct hami_charge *charge)
{
    bool is_substitute = false;

    result = hami_memory_substitute(result, pointer, pitched(width, height), &is_substitute);
    if (is_substitute) {
        *pitch = rounded(width, UNIT);
        charge->kind = HAMI_MEMORY_SUBSTITUTE;
    }
    return result;
}

#define ALLOCATE_PITCH(symbol, substitute)                                                                                         \
    do {                                                                                                                           \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                                                         \
        int device = real && pointer && pitch && width && height ? hami_process_current_device() : -1;                             \
        struct hami_charge charge = {.bytes = pitched(width, height), .device = (int16_t)device};                                  \
        CUresult result;                                                                                                           \
                                                                                                                                   \
        if (!real)                                                                                                                 \
            return CUDA_ERROR_NOT_FOUND;                                                                                           \
        if (device < 0)                                                                                                            \
            return real(pointer, pitch, width, height, element_bytes);                                                             \
        HAMI_CHANGING(device);                                                                                                     \
        result = hami_memory_charge(device, charge.bytes);                                                                         \
        if (result != CUDA_SUCCESS)                                                                                                \
            return result;                                                                                                         \
        result = HAMI_INSIDE(real(pointer, pitch, width, height, element_bytes));                                                  \
        if (__builtin_expect(result == CUDA_ERROR_OUT_OF_MEMORY, 0))                                                               \
            result = substitute;                                                                                                   \
        return settle_pitch(result, result == CUDA_SUCCESS ? *pointer : 0, result == CUDA_SUCCESS ? (uint64_t)*pitch * height : 0, \
                            charge);                                                                                               \
    } while (0)

HAMI_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                        unsigned int element_bytes)
{
    ALLOCATE_PITCH(cuMemAllocPitch_v2, substitute_pitch(result, pointer, pitch, width, height, &charge));
}

HAMI_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                                     unsigned int element_bytes)
{
    ALLOCATE_PITCH(cuMemAllocPitch, result);
}

/*
 * A pointer this library does not know goes to the driver all the same: its answer is the program's. The driver waits for the device,
 * so that pools may have less afterwards.
 */
#define FREE(symbol, pointer)                                                     \
    do {                                                                          \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                        \
        struct hami_charge taken;                                                 \
        CUresult result;                                                          \
                                                                                  \
        if (!real)                                                                \
            return CUDA_ERROR_NOT_FOUND;                                          \
        if (hami_inside || !(pointer))                                            \
            return real(pointer);                                                 \
        result = HAMI_MEMORY_END(&hami_pointers, pointer, &taken, real(pointer)); \
        hami_pools_refresh();                                                     \
        return result;                                                            \
    } while (0)

HAMI_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    FREE(cuMemFree_v2, pointer);
}

HAMI_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    FREE(cuMemFree, pointer);
}
