#include "driver.h"

#include <stddef.h>

#include "hooks.h"

#define CAPTURE_MODE_RELAXED 2

CUcontext hami_current_context(void)
{
    CUcontext context = NULL;

    HAMI_INSIDE(hami_real.cuCtxGetCurrent(&context));
    return context;
}

bool hami_is_capturing(CUstream stream, bool is_per_thread)
{
    __typeof__(&cuStreamIsCapturing) ask = is_per_thread && HAMI_HAS(hami_real.cuStreamIsCapturing_ptsz)
                                               ? hami_real.cuStreamIsCapturing_ptsz
                                               : hami_real.cuStreamIsCapturing;
    CUstreamCaptureStatus status;

    return HAMI_INSIDE(ask(stream, &status)) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

static int exchange_capture_mode(int mode)
{
    HAMI_INSIDE(hami_real.cuThreadExchangeStreamCaptureMode(&mode));
    return mode;
}

int hami_relax_capture_mode(void)
{
    return exchange_capture_mode(CAPTURE_MODE_RELAXED);
}

void hami_restore_capture_mode(int mode)
{
    exchange_capture_mode(mode);
}
