/*
 * Arrays and mipmapped arrays.
 *
 * Texture memory is laid out in tiles of 64 bytes by 8 rows, so that a row's bytes and the number of rows are rounded up to those, for
 * each layer and each mipmap level. Sparse arrays, and those whose memory is mapped later, have none of their own.
 */
#include <stdlib.h>

#include "cuda_memory.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u
#define DIMENSION_MAX ((size_t)1 << 17)

enum { LEVELS_MAX = 18 };

struct CUarray_st {
    CUcontext context;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
    struct fake_charge charge;
    struct CUarray_st *next;
};

struct CUmipmappedArray_st {
    CUcontext context;
    struct fake_charge charge;
    unsigned int count;
    struct CUarray_st levels[LEVELS_MAX];
    struct CUmipmappedArray_st *next;
};

static CUarray arrays;
static CUmipmappedArray mipmaps;

/* Bytes of one channel of one element; 0 for formats that are not modelled. Source: CUarray_format. */
static size_t channel_bytes(int format)
{
    switch (format) {
    case 0x01: /* UNSIGNED_INT8 */
    case 0x08: /* SIGNED_INT8 */
        return 1;
    case 0x02: /* UNSIGNED_INT16 */
    case 0x09: /* SIGNED_INT16 */
    case 0x10: /* HALF */
        return 2;
    case 0x03: /* UNSIGNED_INT32 */
    case 0x0a: /* SIGNED_INT32 */
    case 0x20: /* FLOAT */
        return 4;
    default:
        return 0;
    }
}

static bool is_valid(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    unsigned int channels = descriptor->NumChannels;

    return descriptor->Width && descriptor->Width <= DIMENSION_MAX && descriptor->Height <= DIMENSION_MAX &&
           descriptor->Depth <= DIMENSION_MAX && (channels == 1 || channels == 2 || channels == 4) &&
           channel_bytes(descriptor->Format);
}

static uint64_t rounded(uint64_t value, uint64_t unit)
{
    return (value + unit - 1) / unit * unit;
}

static uint64_t layer_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    uint64_t row = rounded(descriptor->Width * channel_bytes(descriptor->Format) * descriptor->NumChannels, TILE_BYTES);

    return row * (descriptor->Height ? rounded(descriptor->Height, TILE_ROWS) : 1);
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return layer_bytes(descriptor) * (descriptor->Depth ? descriptor->Depth : 1);
}

static CUresult take(struct fake_charge *charge, CUcontext context, uint64_t bytes, unsigned int flags)
{
    bool is_bare = flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);

    return fake_charge_take(charge, is_bare ? -1 : context->physical, bytes) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUcontext context;
    CUresult result = fake_current(&context);
    CUarray fresh;

    if (result != CUDA_SUCCESS)
        return result;
    if (!is_valid(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = take(&fresh->charge, context, array_bytes(descriptor), descriptor->Flags);
    if (result != CUDA_SUCCESS) {
        free(fresh);
        return result;
    }
    fresh->context = context;
    fresh->descriptor = *descriptor;
    fake_memory_lock();
    fresh->next = arrays;
    arrays = fresh;
    fake_memory_unlock();
    *array = fresh;
    return CUDA_SUCCESS;
}

API CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    return array && descriptor ? create(array, descriptor) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *flat)
{
    if (!array || !flat)
        return CUDA_ERROR_INVALID_VALUE;
    return create(array, &(CUDA_ARRAY3D_DESCRIPTOR){flat->Width, flat->Height, 0, flat->Format, flat->NumChannels, 0});
}

API CUresult cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *narrow)
{
    if (!array || !narrow)
        return CUDA_ERROR_INVALID_VALUE;
    return create(array, &(CUDA_ARRAY3D_DESCRIPTOR){narrow->Width, narrow->Height, narrow->Depth, narrow->Format,
                                                    narrow->NumChannels, narrow->Flags});
}

API CUresult cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *narrow)
{
    if (!array || !narrow)
        return CUDA_ERROR_INVALID_VALUE;
    return create(array, &(CUDA_ARRAY3D_DESCRIPTOR){narrow->Width, narrow->Height, 0, narrow->Format, narrow->NumChannels, 0});
}

static void destroy_array(CUarray *link)
{
    CUarray array = *link;

    *link = array->next;
    fake_charge_give(&array->charge);
    free(array);
}

API CUresult cuArrayDestroy(CUarray array)
{
    CUresult result = fake_check();
    CUarray *link = &arrays;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    while (*link && *link != array)
        link = &(*link)->next;
    if (*link)
        destroy_array(link);
    else
        result = CUDA_ERROR_INVALID_HANDLE;
    fake_memory_unlock();
    return result;
}

EXTRA(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array)
{
    if (!descriptor || !array)
        return CUDA_ERROR_INVALID_VALUE;
    *descriptor = array->descriptor;
    return fake_check();
}

EXTRA(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array)
{
    if (!descriptor || !array)
        return CUDA_ERROR_INVALID_VALUE;
    *descriptor = (CUDA_ARRAY_DESCRIPTOR){array->descriptor.Width, array->descriptor.Height, array->descriptor.Format,
                                          array->descriptor.NumChannels};
    return fake_check();
}

/* Mipmapped arrays */

static size_t halved(size_t length, unsigned int level)
{
    return length && !(length >> level) ? 1 : length >> level;
}

/* Fill in the levels; returns the bytes of all. */
static uint64_t lay_out(CUmipmappedArray mipmap, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    bool is_layered = descriptor->Flags & 5u; /* CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP */
    uint64_t bytes = 0;

    for (unsigned int level = 0; level < mipmap->count; level++) {
        CUDA_ARRAY3D_DESCRIPTOR *smaller = &mipmap->levels[level].descriptor;

        *smaller = *descriptor;
        smaller->Width = halved(descriptor->Width, level);
        smaller->Height = halved(descriptor->Height, level);
        smaller->Depth = is_layered ? descriptor->Depth : halved(descriptor->Depth, level);
        bytes += array_bytes(smaller);
    }
    return bytes;
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    CUcontext context;
    CUresult result = fake_current(&context);
    CUmipmappedArray fresh;

    if (result != CUDA_SUCCESS)
        return result;
    if (!array || !descriptor || !levels || !is_valid(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return CUDA_ERROR_OUT_OF_MEMORY;
    fresh->context = context;
    fresh->count = levels < LEVELS_MAX ? levels : LEVELS_MAX;
    result = take(&fresh->charge, context, lay_out(fresh, descriptor), descriptor->Flags);
    if (result != CUDA_SUCCESS) {
        free(fresh);
        return result;
    }
    fake_memory_lock();
    fresh->next = mipmaps;
    mipmaps = fresh;
    fake_memory_unlock();
    *array = fresh;
    return CUDA_SUCCESS;
}

API CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray array, unsigned int level)
{
    if (!level_array || !array || level >= array->count)
        return CUDA_ERROR_INVALID_VALUE;
    *level_array = &array->levels[level];
    return fake_check();
}

static void destroy_mipmap(CUmipmappedArray *link)
{
    CUmipmappedArray mipmap = *link;

    *link = mipmap->next;
    fake_charge_give(&mipmap->charge);
    free(mipmap);
}

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    CUresult result = fake_check();
    CUmipmappedArray *link = &mipmaps;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    while (*link && *link != array)
        link = &(*link)->next;
    if (*link)
        destroy_mipmap(link);
    else
        result = CUDA_ERROR_INVALID_HANDLE;
    fake_memory_unlock();
    return result;
}

void fake_arrays_forget(CUcontext context)
{
    for (CUarray *link = &arrays; *link;) {
        if ((*link)->context == context)
            destroy_array(link);
        else
            link = &(*link)->next;
    }
    for (CUmipmappedArray *link = &mipmaps; *link;) {
        if ((*link)->context == context)
            destroy_mipmap(link);
        else
            link = &(*link)->next;
    }
}
