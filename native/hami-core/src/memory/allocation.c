/*
 * The hooks of plain, managed and pitched allocations, and of their frees.
 */
#include "account.h"
#include "devices.h"
#include "driver.h"
#include "hooks.h"
#include "overhead.h"
#include "substitute.h"

static CUresult free_again(CUdeviceptr pointer)
{
    HAMI_INSIDE(hami_real.cuMemFree_v2(pointer));
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Settle a charge after the driver's answer: keep it under the pointer, or give it back. */
static CUresult settle(CUresult result, CUdeviceptr pointer, struct hami_charge charge)
{
    charge.key = pointer;
    if (result != CUDA_SUCCESS || !pointer) {
        hami_memory_discharge(&charge);
        return result;
    }
    charge.owner = (uint64_t)(uintptr_t)hami_current_context();
    return hami_memory_remember(&hami_pointers, charge) ? CUDA_SUCCESS : free_again(pointer);
}

/*
 * The body of an allocation on the current device. `arguments` are the driver's, in parentheses; it returns the address in
 * `*pointer`. If it is out of memory, `substitute(result, pointer, charge)` may use other memory.
 */
#define ALLOCATE(symbol, arguments, pointer, charged_bytes, substitute)                     \
    do {                                                                                    \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                                 \
        struct hami_charge charge_ = {.bytes = (charged_bytes), .kind = HAMI_MEMORY_PLAIN}; \
        int device_ = charge_.bytes && (pointer) ? hami_current_device() : -1;              \
        CUresult result_;                                                                   \
                                                                                            \
        if (device_ < 0)                                                                    \
            return real_ arguments;                                                         \
        HAMI_CHANGING(device_);                                                             \
        charge_.device = (int16_t)device_;                                                  \
        result_ = hami_memory_charge(device_, charge_.bytes);                               \
        if (result_ != CUDA_SUCCESS)                                                        \
            return result_;                                                                 \
        result_ = HAMI_INSIDE(real_ arguments);                                             \
        if (__builtin_expect(result_ == CUDA_ERROR_OUT_OF_MEMORY, 0))                       \
            result_ = substitute(result_, pointer, &charge_);                               \
        return settle(result_, result_ == CUDA_SUCCESS ? *(pointer) : 0, charge_);          \
    } while (0)

#define NO_SUBSTITUTE(result, ...) (result)

static CUresult substitute_plain(CUresult result, CUdeviceptr *pointer, struct hami_charge *charge)
{
    bool is_substitute;

    result = hami_memory_substitute(result, pointer, charge->bytes, &is_substitute);
    if (is_substitute)
        charge->kind = HAMI_MEMORY_SUBSTITUTE;
    return result;
}

HAMI_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    ALLOCATE(cuMemAlloc_v2, (pointer, bytes), pointer, bytes, substitute_plain);
}

HAMI_EXPORT CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
    ALLOCATE(cuMemAlloc, (pointer, bytes), pointer, bytes, NO_SUBSTITUTE);
}

/* Managed memory does not share blocks, however small it is. */
HAMI_EXPORT CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
    hami_overhead_note_elsewhere();
    ALLOCATE(cuMemAllocManaged, (pointer, bytes, flags), pointer, hami_whole_blocks(bytes), NO_SUBSTITUTE);
}

/*
 * The driver chooses the pitch. The charge assumes multiples of 512 bytes, which is what drivers use. If the driver chooses another
 * pitch, the charge is corrected afterwards.
 */
static uint64_t pitched(size_t width, size_t height)
{
    uint64_t bytes;

    return __builtin_mul_overflow(hami_rounded(width, HAMI_MEMORY_UNIT), height, &bytes) ? UINT64_MAX : bytes;
}

static CUresult settle_pitch(CUdeviceptr pointer, uint64_t bytes, struct hami_charge charge)
{
    if (bytes != charge.bytes) {
        hami_memory_discharge(&charge);
        charge.bytes = bytes;
        if (hami_memory_charge(charge.device, bytes) != CUDA_SUCCESS)
            return free_again(pointer);
    }
    return settle(CUDA_SUCCESS, pointer, charge);
}

static CUresult substitute_pitched(CUresult result, CUdeviceptr *pointer, size_t *pitch, size_t width, struct hami_charge *charge)
{
    result = substitute_plain(result, pointer, charge);
    if (charge->kind == HAMI_MEMORY_SUBSTITUTE)
        *pitch = hami_rounded(width, HAMI_MEMORY_UNIT);
    return result;
}

/* ALLOCATE for `height` rows of `width` bytes; the driver returns the distance of two rows in `*pitch`. */
#define ALLOCATE_PITCHED(symbol, arguments, pointer, pitch, width, height, substitute)              \
    do {                                                                                            \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                                         \
        int device_ = (pointer) && (pitch) && (width) && (height) ? hami_current_device() : -1;     \
        struct hami_charge charge_ = {.bytes = pitched(width, height), .device = (int16_t)device_}; \
        CUresult result_;                                                                           \
                                                                                                    \
        if (device_ < 0)                                                                            \
            return real_ arguments;                                                                 \
        HAMI_CHANGING(device_);                                                                     \
        result_ = hami_memory_charge(device_, charge_.bytes);                                       \
        if (result_ != CUDA_SUCCESS)                                                                \
            return result_;                                                                         \
        result_ = HAMI_INSIDE(real_ arguments);                                                     \
        if (__builtin_expect(result_ == CUDA_ERROR_OUT_OF_MEMORY, 0))                               \
            result_ = substitute(result_, pointer, pitch, width, &charge_);                         \
        if (result_ != CUDA_SUCCESS)                                                                \
            return settle(result_, 0, charge_);                                                     \
        return settle_pitch(*(pointer), (uint64_t)*(pitch) * (height), charge_);                    \
    } while (0)

HAMI_EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height,
                                        unsigned int element_bytes)
{
    ALLOCATE_PITCHED(cuMemAllocPitch_v2, (pointer, pitch, width, height, element_bytes), pointer, pitch, width, height,
                     substitute_pitched);
}

HAMI_EXPORT CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
                                     unsigned int element_bytes)
{
    ALLOCATE_PITCHED(cuMemAllocPitch, (pointer, pitch, width, height, element_bytes), pointer, pitch, width, height, NO_SUBSTITUTE);
}

/*
 * An unknown pointer is forwarded, and the program gets the driver's answer. A free waits for the device, so pools may have less
 * afterwards.
 */
#define FREE(symbol, pointer)                                                        \
    do {                                                                             \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                          \
        struct hami_charge taken_;                                                   \
        CUresult result_;                                                            \
                                                                                     \
        if (hami_inside || !(pointer))                                               \
            return real_(pointer);                                                   \
        result_ = HAMI_MEMORY_END(&hami_pointers, pointer, &taken_, real_(pointer)); \
        hami_pools_refresh();                                                        \
        return result_;                                                              \
    } while (0)

HAMI_EXPORT CUresult cuMemFree_v2(CUdeviceptr pointer)
{
    FREE(cuMemFree_v2, pointer);
}

HAMI_EXPORT CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
    FREE(cuMemFree, pointer);
}
