/*
 * The hooks of arrays, mipmapped arrays and memory of other programming interfaces, which have a description instead of a size.
 *
 * Texture memory is laid out in tiles of 64 bytes by 8 rows (the smallest block-linear layout). So the length and number of rows
 * are rounded up to these, for each layer and each level. Sparse arrays, and those whose memory is mapped later, have no memory of
 * their own. What is mapped into them is charged in vmm.c.
 */
#include "account.h"
#include "devices.h"
#include "driver.h"
#include "hooks.h"
#include "overhead.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u

enum { LAYERED = 0x1, CUBEMAP = 0x4, LEVELS_MAX = 32 };

/* Return the bits of one channel of one element. Unlisted formats get 32, the most that any has. Source: CUarray_format. */
static unsigned int channel_bits(int format)
{
    if (format >= 0xc0 && format <= 0xcb) /* normalised, with 8 and 16 bits and 1, 2 and 4 channels each: unsigned, then signed */
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

/*
 * Return the bits of one element. Compressed blocks of 4 by 4 elements have 8 bytes in the first and fourth scheme and 16 in the
 * others, with any number of channels.
 */
static unsigned int element_bits(int format, unsigned int channels)
{
    switch (format) {
    case 0x91: /* BC1_UNORM, also with sRGB */
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

static uint64_t product(uint64_t first, uint64_t second)
{
    uint64_t result;

    return __builtin_mul_overflow(first, second, &result) ? UINT64_MAX / 2 : result;
}

static uint64_t array_bytes(CUDA_ARRAY3D_DESCRIPTOR array)
{
    uint64_t bits = product(array.Width, element_bits(array.Format, array.NumChannels));
    uint64_t row = hami_rounded((bits + 7) / 8, TILE_BYTES);
    uint64_t layer = product(row, array.Height ? hami_rounded(array.Height, TILE_ROWS) : 1);

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

/* The body that makes an object on the current device, if `is_charged` (account.h). */
#define CREATE(symbol, arguments, made, table, is_charged, charged_bytes, undo)                                 \
    HAMI_MEMORY_MAKE(symbol, arguments, made, table, (is_charged) && !hami_inside ? hami_current_device() : -1, \
                     ((struct hami_charge){.bytes = (charged_bytes), .owner = (uint64_t)(uintptr_t)hami_current_context()}), undo)

static CUDA_ARRAY3D_DESCRIPTOR flat(size_t width, size_t height, int format, unsigned int channels)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){.Width = width, .Height = height, .Format = format, .NumChannels = channels};
}

HAMI_EXPORT CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *descriptor)
{
    CREATE(cuArrayCreate, (array, descriptor), array, hami_arrays, array && descriptor,
           array_bytes(flat(descriptor->Width, descriptor->Height, descriptor->Format, descriptor->NumChannels)), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor)
{
    CREATE(cuArrayCreate_v2, (array, descriptor), array, hami_arrays, array && descriptor,
           array_bytes(flat(descriptor->Width, descriptor->Height, descriptor->Format, descriptor->NumChannels)), cuArrayDestroy);
}

static CUDA_ARRAY3D_DESCRIPTOR widened(const CUDA_ARRAY3D_DESCRIPTOR_v1 *narrow)
{
    return (CUDA_ARRAY3D_DESCRIPTOR){narrow->Width,  narrow->Height,      narrow->Depth,
                                     narrow->Format, narrow->NumChannels, narrow->Flags};
}

HAMI_EXPORT CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *descriptor)
{
    CREATE(cuArray3DCreate, (array, descriptor), array, hami_arrays, array && descriptor && !is_bare(descriptor->Flags),
           array_bytes(widened(descriptor)), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CREATE(cuArray3DCreate_v2, (array, descriptor), array, hami_arrays, array && descriptor && !is_bare(descriptor->Flags),
           array_bytes(*descriptor), cuArrayDestroy);
}

HAMI_EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    CREATE(cuMipmappedArrayCreate, (array, descriptor, levels), array, hami_arrays,
           array && descriptor && levels && !is_bare(descriptor->Flags), levels_bytes(descriptor, levels), cuMipmappedArrayDestroy);
}

/*
 * Memory that another programming interface allocated, so nothing was charged for it yet. Memory from CUDA is imported with other
 * functions.
 */
HAMI_EXPORT CUresult cuImportExternalMemory(CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    hami_overhead_note_elsewhere();
    CREATE(cuImportExternalMemory, (memory, description), memory, hami_imports, memory && description && description->size,
           description->size, cuDestroyExternalMemory);
}

#define DESTROY(symbol, table, handle)                                    \
    do {                                                                  \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);               \
        struct hami_charge taken_;                                        \
                                                                          \
        if (hami_inside || !(handle))                                     \
            return real_(handle);                                         \
        return HAMI_MEMORY_END(&(table), handle, &taken_, real_(handle)); \
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
