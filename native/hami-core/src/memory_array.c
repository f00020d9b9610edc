/*
 * Arrays, mipmapped arrays and memory of other programming interfaces: what has a description instead of a size.
 *
 * Texture memory is laid out in tiles of 64 bytes by 8 rows (the smallest block-linear layout), so rows and their number are rounded up
 * to those, for each layer and each level. Sparse arrays, and those whose memory is mapped later, have none of their own; what is mapped
 * into them is charged as what it is (memory_vmm.c).
 */
#include "hooks.h"
#include "memory.h"
#include "process.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u

enum { LAYERED = 0x1, CUBEMAP = 0x4, LEVELS_MAX = 32 };

/* Bits of one channel of one element; 32 also where a format is not listed, which is none too few. Source: CUarray_format. */
static unsigned int channel_bits(int format)
{
    if (format >= 0xc0 && format <= 0xcb) /* normalised, of 8 and 16 bits, with 1, 2 and 4 channels each: unsigned, then signed */
        return (format - 0xc0) % 6 < 3 ? 8 : 16;
    switch (format) {
    case 0x01: /* UNSIGNED_INT8 */
    case 0x08: /* SIGNED_INT8 */
        return 8;
    case 0x02: /* UNSIGNED_INT16 */
    case 0x09: /* SIGNED_INT16 */
    case 0x10: /* HALF */
        return 16;
    default:
        return 32;
    }
}

/* Compressed blocks of 4 by 4 elements have 8 bytes in the first and fourth scheme and 16 in the others, whatever their channels. */
static unsigned int element_bits(int format, unsigned int channels)
{
    switch (format) {
    case 0x91: /* BC1_UNORM, and with sRGB */
    case 0x92:
    case 0x97: /* BC4_UNORM, BC4_SNORM */
    case 0x98:
        return 4;
    case 0xb0: /* NV12 */
        return 12;
    default:
        return format > 0x92 && format < 0x9f ? 8 : channel_bits(format) * channels;
    }
}

static uint64_t rounded(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t product(uint64_t first, uint64_t second)
{
    uint64_t result;

    return __builtin_mul_overflow(first, second, &result) ? UINT64_MAX / 2 : result;
}

static uint64_t array_bytes(CUDA_ARRAY3D_DESCRIPTOR array)
{
    uint64_t bits = product(array.Width, element_bits(array.Format, array.NumChannels));
    uint64_t row = rounded((bits + 7) / 8, TILE_BYTES);
    uint64_t layer = product(row, array.Height ? rounded(array.Height, TILE_ROWS) : 1);

    return product(layer, array.Depth ? array.Depth : 1);
}

static size_t halved(size_t length, unsigned int level)
{
    return length && !(length >> level) ? 1 : length >> level;
}

static uint64_t levels_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    unsigned int most = 1;
    uint64_t bytes = 0;

    while (most < LEVELS_MAX && ((descriptor->Width | descriptor->Height | descriptor->Depth) >> most))
        most++;
    for (unsigned int level = 0; level < levels && level < most; level++) {
        CUDA_ARRAY3D_DESCRIPTOR smaller = *descriptor;

        smaller.Width = halved(descriptor->Width, level);
        smaller.Height = halved(descriptor->Height, level);
        if (!(descriptor->Flags & (LAYERED | CUBEMAP)))
            smaller.Depth = halved(descriptor->Depth, level);
        bytes += array_bytes(smaller);
    }
    return bytes;
}

static bool is_bare(unsigned int flags)
{
    return flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
}

/* `charged` bytes for what `call` leaves in `*array`; `undo` ends it again. */
#define CREATE(symbol, table, is_charged, charged, array, call, undo)                           \
    do {                                                                                        \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);                                      \
        int device = real && (is_charged) && !hami_inside ? hami_process_current_device() : -1; \
        struct hami_charge charge = {.device = (int16_t)device};                                \
        CUresult result;                                                                        \
                                                                                                \
        if (!real)                                                                              \
            return CUDA_ERROR_NOT_FOUND;                                                        \
        if (device < 0)                                                                         \
            return call;                                                                        \
        HAMI_CHANGING(device);                                                                  \
        charge.bytes = (charged);                                                               \
        result = hami_memory_charge(device, charge.bytes);                                      \
        if (result != CUDA_SUCCESS)                                                             \
            return result;                                                                      \
        result = HAMI_INSIDE(call);                                                             \
        if (result != CUDA_SUCCESS) {                                                           \
            hami_memory_discharge(&charge);                                                     \
            return result;                                                                      \
        }                                                                                       \
        charge.key = (uint64_t)(uintptr_t)*(array);                                             \
        charge.owner = hami_memory_owner();                                                     \
        if (hami_memory_remember(&table, charge))                                               \
            return CUDA_SUCCESS;                                                                \
        if (hami_real.undo)                                                                     \
            HAMI_INSIDE(hami_real.undo(*(array)));                                              \
        return CUDA_ERROR_OUT_OF_MEMORY;                                                        \
    } while (0)

static CUDA_ARRAY3D_DESCRIPTOR flat(size_t width, size_t height, int format, unsigned int channels)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width, .Height = height, .Format = format, .NumChannels = channels};
}

HAMI_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    CREATE(cuArrayCreate, hami_arrays, array && descriptor,
           array_bytes(flat(descriptor->Width, descriptor->Height, descriptor->Format, descriptor->NumChannels)), array,
           real(array, descriptor), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CREATE(cuArrayCreate_v2, hami_arrays, array && descriptor,
           array_bytes(flat(descriptor->Width, descriptor->Height, descriptor->Format, descriptor->NumChannels)), array,
           real(array, descriptor), cuArrayDestroy);
}

static CUDA_ARRAY3D_DESCRIPTOR widened(const CUDA_ARRAY3D_DESCRIPTOR_v1 *narrow)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){narrow->Width, narrow->Height, narrow->Depth, narrow->Format, narrow->NumChannels,
                                     narrow->Flags};
}

HAMI_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    CREATE(cuArray3DCreate, hami_arrays, array && descriptor && !is_bare(descriptor->Flags),
           array_bytes(widened(descriptor)), array, real(array, descriptor), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CREATE(cuArray3DCreate_v2, hami_arrays, array && descriptor && !is_bare(descriptor->Flags), array_bytes(*descriptor), array,
           real(array, descriptor), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    CREATE(cuMipmappedArrayCreate, hami_arrays, array && descriptor && levels && !is_bare(descriptor->Flags),
           levels_bytes(descriptor, levels), array, real(array, descriptor, levels), cuMipmappedArrayDestroy);
}

/* Memory made by another interface, which nobody has charged: whoever imports it pays. Memory from CUDA comes in other ways. */
HAMI_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    CREATE(cuImportExternalMemory, hami_imports, memory && description && description->size, description->size, memory,
           real(memory, description), cuDestroyExternalMemory);
}

#define DESTROY(symbol, table, handle)                                \
    do {                                                              \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);            \
        struct hami_charge taken;                                     \
                                                                      \
        if (!real)                                                    \
            return CUDA_ERROR_NOT_FOUND;                              \
        if (hami_inside || !(handle))                                 \
            return real(handle);                                      \
        return HAMI_MEMORY_END(&table, handle, &taken, real(handle)); \
    } while (0)

HAMI_EXPORT CUresult cuArrayDestroy(CUarray array)
{
    DESTROY(cuArrayDestroy, hami_arrays, array);
}

HAMI_EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    DESTROY(cuMipmappedArrayDestroy, hami_arrays, array);
}

HAMI_EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory memory)
{
    DESTROY(cuDestroyExternalMemory, hami_imports, memory);
}
