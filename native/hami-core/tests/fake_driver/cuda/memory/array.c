/*
 * Arrays and mipmapped arrays.
 *
 * Texture memory is modelled in tiles of 64 bytes by 8 rows: the bytes of a row and the number of rows are rounded up to these, for
 * each layer and each mipmap level. Sparse arrays, and those whose memory is mapped later, have no memory of their own.
 */
#include <stdlib.h>

#include "cuda/memory/memory.h"

#define TILE_BYTES 64u
#define TILE_ROWS 8u
#define DIMENSION_MAX ((size_t)1 << 17)

enum { LEVELS_MAX = 18 };

/* The common beginning of both kinds: context and charge. */
struct texture {
    CUcontext context;
    struct fake_charge charge;
    struct texture *next;
};

struct CUarray_st {
    struct texture texture;
    CUDA_ARRAY3D_DESCRIPTOR descriptor;
};

struct CUmipmappedArray_st {
    struct texture texture;
    unsigned int count;
    struct CUarray_st levels[LEVELS_MAX]; /* share the memory */
};

static struct texture *textures;

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

/* Make a texture at the head of `size` bytes in the current context; NULL with the reason. */
static void *make(size_t size, uint64_t bytes, unsigned int flags, CUresult *result)
{
    bool is_bare = flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING);
    struct texture *fresh;
    CUcontext context;

    *result = fake_current(&context);
    if (*result != CUDA_SUCCESS)
        return NULL;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
    fresh = calloc(1, size);
    if (!fresh || !fake_charge_take(&fresh->charge, is_bare ? -1 : context->physical, bytes)) {
        free(fresh);
        return NULL;
    }
    fresh->context = context;
    fake_memory_lock();
    fresh->next = textures;
    textures = fresh;
    fake_memory_unlock();
    *result = CUDA_SUCCESS;
    return fresh;
}

static void end(struct texture **link)
{
    struct texture *texture = *link;

    *link = texture->next;
    fake_charge_give(&texture->charge);
    free(texture);
}

static CUresult destroy(struct texture *texture)
{
    CUresult result = fake_check();
    struct texture **link = &textures;

    if (result != CUDA_SUCCESS)
        return result;
    fake_memory_lock();
    while (*link && *link != texture)
        link = &(*link)->next;
    if (*link)
        end(link);
    else
        result = CUDA_ERROR_INVALID_HANDLE;
    fake_memory_unlock();
    return result;
}

void fake_arrays_forget(CUcontext context)
{
    for (struct texture **link = &textures; *link;) {
        if ((*link)->context == context)
            end(link);
        else
            link = &(*link)->next;
    }
}

static CUresult create(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor)
{
    CUresult result = fake_check();
    CUarray fresh;

    if (result != CUDA_SUCCESS || !is_valid(descriptor))
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    fresh = make(sizeof(*fresh), array_bytes(descriptor), descriptor->Flags, &result);
    if (!fresh)
        return result;
    fresh->descriptor = *descriptor;
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

API CUresult cuArrayDestroy(CUarray array)
{
    return destroy((struct texture *)array);
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

static CUDA_ARRAY3D_DESCRIPTOR level_of(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int level)
{
    bool is_layered = descriptor->Flags & 5u; /* CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_CUBEMAP */
    CUDA_ARRAY3D_DESCRIPTOR smaller = *descriptor;

    smaller.Width = halved(descriptor->Width, level);
    smaller.Height = halved(descriptor->Height, level);
    smaller.Depth = is_layered ? descriptor->Depth : halved(descriptor->Depth, level);
    return smaller;
}

static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int level)
{
    CUDA_ARRAY3D_DESCRIPTOR smaller = level_of(descriptor, level);

    return array_bytes(&smaller);
}

API CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels)
{
    CUresult result = fake_check();
    CUmipmappedArray fresh;
    uint64_t bytes = 0;

    if (result != CUDA_SUCCESS)
        return result;
    if (!array || !descriptor || !levels || !is_valid(descriptor))
        return CUDA_ERROR_INVALID_VALUE;
    levels = levels < LEVELS_MAX ? levels : LEVELS_MAX;
    for (unsigned int level = 0; level < levels; level++)
        bytes += level_bytes(descriptor, level);
    fresh = make(sizeof(*fresh), bytes, descriptor->Flags, &result);
    if (!fresh)
        return result;
    fresh->count = levels;
    for (unsigned int level = 0; level < levels; level++)
        fresh->levels[level].descriptor = level_of(descriptor, level);
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

API CUresult cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return destroy((struct texture *)array);
}
