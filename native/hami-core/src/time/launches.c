/*
 * The hooks of kernel launches. Hooks of graph launches are in graph.c, because graphs also take memory.
 */
#include "hooks.h"
#include "limiter.h"

/* The body of a launch. `arguments` are the driver's, in parentheses. The others describe the launch as in struct hami_launch. */
#define LAUNCH(symbol, arguments, stream, is_per_thread, function, blocks, threads)            \
    do {                                                                                       \
        __typeof__(&symbol) real_ = HAMI_REAL_CUDA(symbol);                                    \
        const struct hami_launch launch_ = {stream, is_per_thread, function, blocks, threads}; \
        struct hami_timed_launch timed_;                                                       \
        CUresult result_;                                                                      \
                                                                                               \
        hami_limiter_enter(&launch_, &timed_);                                                 \
        result_ = real_ arguments;                                                             \
        if (__builtin_expect(timed_.from != NULL, 0))                                          \
            hami_limiter_leave(&timed_, result_);                                              \
        return result_;                                                                        \
    } while (0)

#define SIZE(x, y, z) ((uint64_t)(x) * (y) * (z))

HAMI_EXPORT CUresult cuLaunch(CUfunction function)
{
    LAUNCH(cuLaunch, (function), NULL, false, function, 0, 0);
}

HAMI_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    LAUNCH(cuLaunchGrid, (function, width, height), NULL, false, function, SIZE((unsigned)width, (unsigned)height, 1), 0);
}

HAMI_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    LAUNCH(cuLaunchGridAsync, (function, width, height, stream), stream, false, function,
           SIZE((unsigned)width, (unsigned)height, 1), 0);
}

HAMI_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel, (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra),
           stream, false, function, SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

HAMI_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                         unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                         unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel_ptsz, (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra),
           stream, true, function, SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

#define STREAM_OF(config) ((config) ? (config)->hStream : NULL)
#define BLOCKS_OF(config) ((config) ? SIZE((config)->gridDimX, (config)->gridDimY, (config)->gridDimZ) : 0)
#define THREADS_OF(config) ((config) ? SIZE((config)->blockDimX, (config)->blockDimY, (config)->blockDimZ) : 0)

HAMI_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx, (config, function, params, extra), STREAM_OF(config), false, function, BLOCKS_OF(config),
           THREADS_OF(config));
}

HAMI_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx_ptsz, (config, function, params, extra), STREAM_OF(config), true, function, BLOCKS_OF(config),
           THREADS_OF(config));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                               unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                               unsigned int shared_bytes, CUstream stream, void **params)
{
    LAUNCH(cuLaunchCooperativeKernel, (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params),
           stream, false, function, SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                                    unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params)
{
    LAUNCH(cuLaunchCooperativeKernel_ptsz,
           (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params), stream, true, function,
           SIZE(grid_x, grid_y, grid_z), SIZE(block_x, block_y, block_z));
}

/* The launches belong together, so all wait before the first one is made. */
HAMI_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    struct hami_timed_launch timed[HAMI_DEVICES_MAX];
    unsigned int gated = !launches ? 0 : count < HAMI_DEVICES_MAX ? count : HAMI_DEVICES_MAX;
    CUresult result;

    for (unsigned int index = 0; index < gated; index++) {
        const CUDA_LAUNCH_PARAMS *one = &launches[index];

        hami_limiter_enter(&(struct hami_launch){one->hStream, false, one->function,
                                                 SIZE(one->gridDimX, one->gridDimY, one->gridDimZ),
                                                 SIZE(one->blockDimX, one->blockDimY, one->blockDimZ)},
                           &timed[index]);
    }
    result = HAMI_REAL_CUDA(cuLaunchCooperativeKernelMultiDevice)(launches, count, flags);
    for (unsigned int index = 0; index < gated; index++)
        if (timed[index].from)
            hami_limiter_leave(&timed[index], result);
    return result;
}
