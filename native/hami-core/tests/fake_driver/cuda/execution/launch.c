/*
 * The calls that launch kernels. FAKE_DRIVER_LAUNCH_NS is the time that a call takes its thread, default 0.
 */
#include <pthread.h>
#include <time.h>

#include "cuda/execution/execution.h"

static uint64_t launch_ns;
static pthread_once_t launch_read = PTHREAD_ONCE_INIT;

static void read_launch_ns(void)
{
    launch_ns = fake_setting("FAKE_DRIVER_LAUNCH_NS", 0);
}

static CUresult launch(CUfunction function, bool has_threads, CUstream handle)
{
    CUstream stream;
    CUresult result = fake_stream(handle, &stream);
    uint64_t duration_ns;

    if (result != CUDA_SUCCESS)
        return result;
    if (!function)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!has_threads)
        return CUDA_ERROR_INVALID_VALUE;
    result = fake_kernel_load(function);
    if (result != CUDA_SUCCESS)
        return result;
    if (fake_capture_kernel(stream, function, &result))
        return result;
    pthread_once(&launch_read, read_launch_ns);
    if (launch_ns)
        nanosleep(&(struct timespec){0, (long)launch_ns}, NULL);
    duration_ns = fake_kernel_draw(function);
    if (!duration_ns)
        return CUDA_SUCCESS;
    return fake_enqueue(stream,
                        (struct fake_step){.kind = FAKE_RUN, .duration_ns = duration_ns, .part = fake_kernel_part(function)});
}

API CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                            unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                            CUstream stream, void **params, void **extra)
{
    (void)shared_bytes;
    (void)params;
    (void)extra;
    return launch(function, grid_x && grid_y && grid_z && block_x && block_y && block_z, stream);
}

API CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                 unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                 CUstream stream, void **params, void **extra)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, FOR_THREAD(stream), params,
                          extra);
}

static CUresult launch_configured(const CUlaunchConfig *config, CUfunction function, CUstream stream)
{
    return launch(function,
                  config->gridDimX && config->gridDimY && config->gridDimZ && config->blockDimX && config->blockDimY &&
                      config->blockDimZ,
                  stream);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)params;
    (void)extra;
    return config ? launch_configured(config, function, config->hStream) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    (void)params;
    (void)extra;
    return config ? launch_configured(config, function, FOR_THREAD(config->hStream)) : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                       unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                       CUstream stream, void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, NULL);
}

API CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                            unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                            unsigned int shared_bytes, CUstream stream, void **params)
{
    return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, FOR_THREAD(stream), params,
                          NULL);
}

API CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    CUresult result = launches && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    (void)flags;
    for (unsigned int index = 0; result == CUDA_SUCCESS && index < count; index++)
        result = launch(launches[index].function, launches[index].gridDimX && launches[index].blockDimX, launches[index].hStream);
    return result;
}

API CUresult cuLaunch(CUfunction function)
{
    return launch(function, true, NULL);
}

API CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return launch(function, width > 0 && height > 0, NULL);
}

API CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return launch(function, width > 0 && height > 0, stream);
}
