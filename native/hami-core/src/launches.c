/*
 * Every entry that starts work on a device, and the ends of streams: each passes limiter.h's gate and goes on to the driver.
 */
#include "hooks.h"
#include "limiter.h"
#include "memory_graph.h"

/* The body of a launch that passes the gate as `...` describes it; `call` is the driver's. */
#define LAUNCH(symbol, call, ...)                                   \
    do {                                                            \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);          \
        struct hami_launch launch = {__VA_ARGS__};                  \
        struct hami_timed_launch timed;                             \
        CUresult result;                                            \
                                                                    \
        if (!real)                                                  \
            return CUDA_ERROR_NOT_FOUND;                            \
        hami_limiter_enter(&launch, &timed);                        \
        result = call;                                              \
        if (__builtin_expect(timed.from != NULL, 0))                \
            hami_limiter_leave(&timed, result);                     \
        return result;                                              \
    } while (0)

#define SIZE(x, y, z) ((uint64_t)(x) * (y) * (z))

HAMI_EXPORT CUresult cuLaunch(CUfunction function)
{
    LAUNCH(cuLaunch, real(function), NULL, false, function, 0, 0);
}

HAMI_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    LAUNCH(cuLaunchGrid, real(function, width, height), NULL, false, function, SIZE((unsigned)width, (unsigned)height, 1), 0);
}

HAMI_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    LAUNCH(cuLaunchGridAsync, real(function, width, height, stream), stream, false, function,
           SIZE((unsigned)width, (unsigned)height, 1), 0);
}

HAMI_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra), stream, false,
           function, SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

HAMI_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                         unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                         unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel_ptsz,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra), stream, true,
           function, SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

#define CONFIGURED(config, per_thread)                                                   \
    (config) ? (config)->hStream : NULL, per_thread, function,                           \
        (config) ? SIZE((config)->gridDimX, (config)->gridDimY, (config)->gridDimZ) : 0, \
        (config) ? SIZE((config)->blockDimX, (config)->blockDimY, (config)->blockDimZ) : 0

HAMI_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx, real(config, function, params, extra), CONFIGURED(config, false));
}

HAMI_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx_ptsz, real(config, function, params, extra), CONFIGURED(config, true));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params)
{
    LAUNCH(cuLaunchCooperativeKernel,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params), stream, false, function,
           SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                                    unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                                    void **params)
{
    LAUNCH(cuLaunchCooperativeKernel_ptsz,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params), stream, true, function,
           SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

/* The launches belong together, so all wait before the first is made. */
HAMI_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    __typeof__(&cuLaunchCooperativeKernelMultiDevice) real = HAMI_REAL_CUDA(cuLaunchCooperativeKernelMultiDevice);
    struct hami_timed_launch timed[HAMI_DEVICES_MAX];
    unsigned int gated = !launches ? 0 : count < HAMI_DEVICES_MAX ? count : HAMI_DEVICES_MAX;
    CUresult result;

    if (!real)
        return CUDA_ERROR_NOT_FOUND;
    for (unsigned int index = 0; index < gated; index++) {
        const CUDA_LAUNCH_PARAMS *one = &launches[index];

        hami_limiter_enter(&(struct hami_launch){one->hStream, false, one->function,
                                                 SIZE(one->gridDimX, one->gridDimY, one->gridDimZ),
                                                 SIZE(one->blockDimX, one->blockDimY, one->blockDimZ)},
                           &timed[index]);
    }
    result = real(launches, count, flags);
    for (unsigned int index = 0; index < gated; index++)
        if (timed[index].from)
            hami_limiter_leave(&timed[index], result);
    return result;
}

HAMI_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    LAUNCH(cuGraphLaunch, hami_graph_run(executable, stream, real), stream, false, executable, 0, 0);
}

HAMI_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    LAUNCH(cuGraphLaunch_ptsz, hami_graph_run(executable, stream, real), stream, true, executable, 0, 0);
}

#define END_STREAM(symbol)                                 \
    do {                                                   \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol); \
                                                           \
        if (!real)                                         \
            return CUDA_ERROR_NOT_FOUND;                   \
        hami_limiter_end_stream(stream);                   \
        return real(stream);                               \
    } while (0)

HAMI_EXPORT CUresult cuStreamDestroy(CUstream stream)
{
    END_STREAM(cuStreamDestroy);
}

HAMI_EXPORT CUresult cuStreamDestroy_v2(CUstream stream)
{
    END_STREAM(cuStreamDestroy_v2);
}
