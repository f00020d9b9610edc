/*
 * Events that another process opens.
 *
 * Source: CUDA Driver API, cuIpcGetEventHandle and cuIpcOpenEventHandle.
 */
#include <stdlib.h>
#include <string.h>

#include "cuda/execution/execution.h"
#include "time/marks.h"

typedef struct CUipcEventHandle_st {
    char reserved[64];
} CUipcEventHandle;

/* No valid handle is all zeros. */
struct ours {
    int mark; /* plus 1 */
};

_Static_assert(sizeof(struct ours) <= sizeof(CUipcEventHandle), "the handle has room for ours");

EXTRA(cuIpcGetEventHandle, CUipcEventHandle *handle, CUevent event)
{
    CUresult result = fake_check();

    if (result != CUDA_SUCCESS)
        return result;
    if (!handle)
        return CUDA_ERROR_INVALID_VALUE;
    if (!event || !event->mark)
        return CUDA_ERROR_INVALID_HANDLE;
    memset(handle, 0, sizeof(*handle));
    memcpy(handle, &(struct ours){event->mark}, sizeof(struct ours));
    return CUDA_SUCCESS;
}

EXTRA(cuIpcOpenEventHandle, CUevent *event, CUipcEventHandle handle)
{
    CUcontext context;
    CUresult result = fake_current(&context);
    struct ours ours;

    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&ours, &handle, sizeof(ours));
    if (!event)
        return CUDA_ERROR_INVALID_VALUE;
    if (!mark_exists(ours.mark - 1))
        return CUDA_ERROR_INVALID_HANDLE;
    result = cuEventCreate(event, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        (*event)->mark = ours.mark;
    return result;
}
