/*
 * The linker of the fake driver: what is added becomes one image, which nothing reads.
 *
 * Source: CUDA Driver API, "Module Management".
 */
#include <stdlib.h>

#include "cuda/execution/execution.h"

typedef struct CUlinkState_st {
    size_t added;
    char image[64];
} *CUlinkState;

EXTRA(cuLinkCreate_v2, unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    CUresult result = fake_check();

    (void)count;
    (void)options;
    (void)values;
    if (result != CUDA_SUCCESS)
        return result;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = calloc(1, sizeof(**state));
    return *state ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXTRA(cuLinkCreate, unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
{
    return cuLinkCreate_v2(count, options, values, state);
}

static CUresult add(CUlinkState state, const void *code)
{
    if (!state || !code)
        return CUDA_ERROR_INVALID_VALUE;
    state->added++;
    return CUDA_SUCCESS;
}

EXTRA(cuLinkAddData_v2, CUlinkState state, int type, void *data, size_t bytes, const char *name, unsigned int count,
      CUjit_option *options, void **values)
{
    (void)type;
    (void)name;
    (void)count;
    (void)options;
    (void)values;
    return bytes ? add(state, data) : CUDA_ERROR_INVALID_VALUE;
}

EXTRA(cuLinkAddData, CUlinkState state, int type, void *data, size_t bytes, const char *name, unsigned int count,
      CUjit_option *options, void **values)
{
    return cuLinkAddData_v2(state, type, data, bytes, name, count, options, values);
}

/* Files need not exist, as for modules. */
EXTRA(cuLinkAddFile_v2, CUlinkState state, int type, const char *path, unsigned int count, CUjit_option *options, void **values)
{
    (void)type;
    (void)count;
    (void)options;
    (void)values;
    return add(state, path);
}

EXTRA(cuLinkAddFile, CUlinkState state, int type, const char *path, unsigned int count, CUjit_option *options, void **values)
{
    return cuLinkAddFile_v2(state, type, path, count, options, values);
}

EXTRA(cuLinkComplete, CUlinkState state, void **image, size_t *bytes)
{
    if (!state || !image)
        return CUDA_ERROR_INVALID_VALUE;
    if (!state->added)
        return CUDA_ERROR_UNKNOWN;
    *image = state->image;
    if (bytes)
        *bytes = sizeof(state->image);
    return CUDA_SUCCESS;
}

EXTRA(cuLinkDestroy, CUlinkState state)
{
    free(state);
    return CUDA_SUCCESS;
}
