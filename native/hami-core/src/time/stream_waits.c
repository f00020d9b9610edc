/*
 * The hooks of what later launches of a stream wait for, host functions and events, and of the ends of streams.
 */
#include "hooks.h"
#include "limiter.h"

/* The body of such a hook. `arguments` are the driver's, in parentheses. */
#define WAIT(symbol, arguments, stream, is_per_thread)      \
    do {                                                    \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol); \
                                                            \
        hami_limiter_note_wait(stream, is_per_thread);      \
        return real_ arguments;                             \
    } while (0)

HAMI_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    WAIT(cuLaunchHostFunc, (stream, function, data), stream, false);
}

HAMI_EXPORT CUresult cuLaunchHostFunc_ptsz(CUstream stream, CUhostFn function, void *data)
{
    WAIT(cuLaunchHostFunc_ptsz, (stream, function, data), stream, true);
}

HAMI_EXPORT CUresult cuLaunchHostFunc_v2(CUstream stream, CUhostFn function, void *data, unsigned int sync_mode)
{
    WAIT(cuLaunchHostFunc_v2, (stream, function, data, sync_mode), stream, false);
}

HAMI_EXPORT CUresult cuLaunchHostFunc_v2_ptsz(CUstream stream, CUhostFn function, void *data, unsigned int sync_mode)
{
    WAIT(cuLaunchHostFunc_v2_ptsz, (stream, function, data, sync_mode), stream, true);
}

HAMI_EXPORT CUresult cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    WAIT(cuStreamAddCallback, (stream, callback, data, flags), stream, false);
}

HAMI_EXPORT CUresult cuStreamAddCallback_ptsz(CUstream stream, CUstreamCallback callback, void *data, unsigned int flags)
{
    WAIT(cuStreamAddCallback_ptsz, (stream, callback, data, flags), stream, true);
}

HAMI_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    WAIT(cuStreamWaitEvent, (stream, event, flags), stream, false);
}

HAMI_EXPORT CUresult cuStreamWaitEvent_ptsz(CUstream stream, CUevent event, unsigned int flags)
{
    WAIT(cuStreamWaitEvent_ptsz, (stream, event, flags), stream, true);
}

#define END_STREAM(symbol, stream)                          \
    do {                                                    \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol); \
                                                            \
        hami_limiter_end_stream(stream);                    \
        return real_(stream);                               \
    } while (0)

HAMI_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    END_STREAM(cuStreamDestroy, stream);
}

HAMI_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    END_STREAM(cuStreamDestroy_v2, stream);
}
