#include "limiter.h"

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "hooks.h"
#include "options.h"
#include "process.h"
#include "region.h"

/* What a launch writes; the monitor counts it down every 5 s. Source: HAMi, cmd/vGPUmonitor/feedback.go. */
enum { ACTIVE = 2 };

#define BLOCKED_POLL_NS 20000000

static _Atomic uint64_t noted_second;

/* Only forwards: another process may have launched later. */
static void note_time(struct hami_region *region, uint64_t now)
{
    uint64_t stored = atomic_load(&region->last_kernel_time);

    atomic_store_explicit(&noted_second, now, memory_order_relaxed);
    while (stored < now && !atomic_compare_exchange_weak(&region->last_kernel_time, &stored, now))
        continue;
}

static bool is_capturing(CUstream stream, bool is_per_thread)
{
    __typeof__(&cuStreamIsCapturing) ask =
        is_per_thread && hami_real.cuStreamIsCapturing_ptsz ? hami_real.cuStreamIsCapturing_ptsz : hami_real.cuStreamIsCapturing;
    CUstreamCaptureStatus status;

    return ask && HAMI_INSIDE(ask(stream, &status)) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The slow part: the monitor counted down, or holds this container back. */
static void report_or_wait(struct hami_region *region, CUstream stream, bool is_per_thread)
{
    int32_t recent = atomic_load(&region->recent_kernel);

    if (recent < 0 && is_capturing(stream, is_per_thread))
        return;
    while ((recent = atomic_load(&region->recent_kernel)) < 0)
        nanosleep(&(struct timespec){0, BLOCKED_POLL_NS}, NULL);
    /* A monitor that blocks in this very moment must not be overwritten. */
    while (recent >= 0 && recent != ACTIVE && !atomic_compare_exchange_weak(&region->recent_kernel, &recent, ACTIVE))
        continue;
}

void hami_limiter_pass(CUstream stream, bool is_per_thread)
{
    struct hami_region *region = hami_region();
    uint64_t now;

    if (__builtin_expect(!region, 0)) {
        if (hami_inside || !hami_process_attach())
            return;
        region = hami_region();
    }
    if (__builtin_expect(atomic_load_explicit(&region->recent_kernel, memory_order_relaxed) != ACTIVE, 0) && !hami_inside)
        report_or_wait(region, stream, is_per_thread);
    now = (uint64_t)time(NULL);
    if (__builtin_expect(now >= atomic_load_explicit(&noted_second, memory_order_relaxed) +
                                    (uint64_t)hami_options()->kernel_interval_seconds,
                         0))
        note_time(region, now);
}

#define LAUNCH(symbol, stream, is_per_thread, call)         \
    do {                                                    \
        __typeof__(&symbol) real = HAMI_REAL_CUDA(symbol);  \
                                                            \
        if (!real)                                          \
            return CUDA_ERROR_NOT_FOUND;                    \
        hami_limiter_pass(stream, is_per_thread);           \
        return call;                                        \
    } while (0)

HAMI_EXPORT CUresult cuLaunch(CUfunction function)
{
    LAUNCH(cuLaunch, NULL, false, real(function));
}

HAMI_EXPORT CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    LAUNCH(cuLaunchGrid, NULL, false, real(function, width, height));
}

HAMI_EXPORT CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    LAUNCH(cuLaunchGridAsync, stream, false, real(function, width, height, stream));
}

HAMI_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                    unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes,
                                    CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel, stream, false,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra));
}

HAMI_EXPORT CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
                                         unsigned int block_x, unsigned int block_y, unsigned int block_z,
                                         unsigned int shared_bytes, CUstream stream, void **params, void **extra)
{
    LAUNCH(cuLaunchKernel_ptsz, stream, true,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra));
}

HAMI_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx, config ? config->hStream : NULL, false, real(config, function, params, extra));
}

HAMI_EXPORT CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    LAUNCH(cuLaunchKernelEx_ptsz, config ? config->hStream : NULL, true, real(config, function, params, extra));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                               unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                               unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params)
{
    LAUNCH(cuLaunchCooperativeKernel, stream, false,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int grid_x, unsigned int grid_y,
                                                    unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                                                    unsigned int block_z, unsigned int shared_bytes, CUstream stream,
                                                    void **params)
{
    LAUNCH(cuLaunchCooperativeKernel_ptsz, stream, true,
           real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params));
}

HAMI_EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launches, unsigned int count, unsigned int flags)
{
    LAUNCH(cuLaunchCooperativeKernelMultiDevice, launches && count ? launches[0].hStream : NULL, false,
           real(launches, count, flags));
}

HAMI_EXPORT CUresult cuGraphLaunch(CUgraphExec executable, CUstream stream)
{
    LAUNCH(cuGraphLaunch, stream, false, real(executable, stream));
}

HAMI_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec executable, CUstream stream)
{
    LAUNCH(cuGraphLaunch_ptsz, stream, true, real(executable, stream));
}
