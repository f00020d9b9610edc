/*
 * Copies and memsets work on the host memory behind the addresses. They take no time.
 *
 * The variants for the per-thread default stream are the same functions.
 */
#include <string.h>

#include "cuda/fake.h"

/* Device memory; in calls that accept either, also the program's own memory. */
static void *at(CUdeviceptr pointer)
{
    return (void *)(uintptr_t)pointer;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!to || !from)
        return CUDA_ERROR_INVALID_VALUE;
    memmove(at(to), at(from), bytes);
    return CUDA_SUCCESS;
}

/* Fill `height` rows of `width` elements with `bytes` of `value`. */
static CUresult fill(CUdeviceptr to, size_t pitch, const void *value, size_t bytes, size_t width, size_t height)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!height || !fake_memory_is_addressable(to, pitch * (height - 1) + width * bytes))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t row = 0; row < height; row++) {
        char *start = at(to + row * pitch);

        if (bytes == 1)
            memset(start, *(const unsigned char *)value, width);
        for (size_t column = 0; bytes > 1 && column < width; column++)
            memcpy(start + column * bytes, value, bytes);
    }
    return CUDA_SUCCESS;
}

EXTRA(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return copy(to, from, bytes);
}

EXTRA(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return copy(to, from, bytes);
}

EXTRA(cuMemcpyPeer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes)
{
    (void)to_context;
    (void)from_context;
    return copy(to, from, bytes);
}

EXTRA(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
      CUstream stream)
{
    (void)stream;
    return cuMemcpyPeer(to, to_context, from, from_context, bytes);
}

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
    if (!fake_memory_is_addressable(to, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(to, (CUdeviceptr)(uintptr_t)from, bytes);
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
    if (!fake_memory_is_addressable(from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy((CUdeviceptr)(uintptr_t)to, from, bytes);
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    if (!fake_memory_is_addressable(to, bytes) || !fake_memory_is_addressable(from, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return copy(to, from, bytes);
}

API CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyHtoD_v2(to, from, bytes);
}

API CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyDtoH_v2(to, from, bytes);
}

EXTRA(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    (void)stream;
    return cuMemcpyDtoD_v2(to, from, bytes);
}

/* Source: cuda.h, CUDA_MEMCPY2D_st and CUmemorytype. */
enum { HOST = 1, DEVICE = 2, ARRAY = 3, UNIFIED = 4 };

struct side_2d {
    size_t x_bytes, y;
    int type;
    const void *host;
    CUdeviceptr device;
    CUarray array;
    size_t pitch;
};

struct copy_2d {
    struct side_2d from, to;
    size_t width_bytes, height;
};

_Static_assert(sizeof(struct copy_2d) == 128, "CUDA_MEMCPY2D_st has 128 bytes");

/* Return where the first row of a side is, or NULL if it is not addressable. `height` is above 0. */
static char *first_row(const struct side_2d *side, size_t width_bytes, size_t height)
{
    bool is_host = side->type == HOST;
    CUdeviceptr base = is_host ? (CUdeviceptr)(uintptr_t)side->host : side->device,
                first = base + side->y * side->pitch + side->x_bytes;

    if (!base || side->pitch < side->x_bytes + width_bytes ||
        (side->type == DEVICE && !fake_memory_is_addressable(first, (height - 1) * side->pitch + width_bytes)))
        return NULL;
    return at(first);
}

/* Copy a rectangle of bytes. Arrays have no bytes here (array.c), so nothing is copied from them or to them. */
static CUresult copy_2d(const struct copy_2d *copy)
{
    CUresult result = fake_check();
    char *to, *from;

    if (result != CUDA_SUCCESS)
        return result;
    if (!copy || copy->from.type < HOST || copy->from.type > UNIFIED || copy->to.type < HOST || copy->to.type > UNIFIED)
        return CUDA_ERROR_INVALID_VALUE;
    if (!copy->height || !copy->width_bytes)
        return CUDA_SUCCESS;
    if (copy->from.type == ARRAY || copy->to.type == ARRAY)
        return CUDA_ERROR_NOT_SUPPORTED;
    from = first_row(&copy->from, copy->width_bytes, copy->height);
    to = first_row(&copy->to, copy->width_bytes, copy->height);
    if (!from || !to)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t row = 0; row < copy->height; row++)
        memmove(to + row * copy->to.pitch, from + row * copy->from.pitch, copy->width_bytes);
    return CUDA_SUCCESS;
}

EXTRA(cuMemcpy2D_v2, const struct copy_2d *copy)
{
    return copy_2d(copy);
}

EXTRA(cuMemcpy2DUnaligned_v2, const struct copy_2d *copy)
{
    return copy_2d(copy);
}

EXTRA(cuMemcpy2DAsync_v2, const struct copy_2d *copy, CUstream stream)
{
    (void)stream;
    return copy_2d(copy);
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
    return fill(to, 0, &value, sizeof(value), count, 1);
}

API CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned int value, size_t count)
{
    return fill(to, 0, &value, sizeof(value), count, 1);
}

/* The other memsets: 1 and 2 dimensions, synchronous and in a stream. */
#define MEMSET(name, element)                                \
    EXTRA(name, CUdeviceptr to, element value, size_t count) \
    {                                                        \
        return fill(to, 0, &value, sizeof(value), count, 1); \
    }
#define MEMSET_ASYNC(name, element)                                           \
    EXTRA(name, CUdeviceptr to, element value, size_t count, CUstream stream) \
    {                                                                         \
        (void)stream;                                                         \
        return fill(to, 0, &value, sizeof(value), count, 1);                  \
    }
#define MEMSET_2D(name, element)                                                          \
    EXTRA(name, CUdeviceptr to, size_t pitch, element value, size_t width, size_t height) \
    {                                                                                     \
        return fill(to, pitch, &value, sizeof(value), width, height);                     \
    }
#define MEMSET_2D_ASYNC(name, element)                                                                     \
    EXTRA(name, CUdeviceptr to, size_t pitch, element value, size_t width, size_t height, CUstream stream) \
    {                                                                                                      \
        (void)stream;                                                                                      \
        return fill(to, pitch, &value, sizeof(value), width, height);                                      \
    }

MEMSET(cuMemsetD16_v2, unsigned short)
MEMSET_ASYNC(cuMemsetD8Async, unsigned char)
MEMSET_ASYNC(cuMemsetD16Async, unsigned short)
MEMSET_ASYNC(cuMemsetD32Async, unsigned int)
MEMSET_2D(cuMemsetD2D8_v2, unsigned char)
MEMSET_2D(cuMemsetD2D16_v2, unsigned short)
MEMSET_2D(cuMemsetD2D32_v2, unsigned int)
MEMSET_2D_ASYNC(cuMemsetD2D8Async, unsigned char)
MEMSET_2D_ASYNC(cuMemsetD2D16Async, unsigned short)
MEMSET_2D_ASYNC(cuMemsetD2D32Async, unsigned int)
