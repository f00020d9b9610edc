/*
 * The driver's own functions, and the hooks that stand in for them.
 *
 * The rows of hooks_cuda.def and hooks_nvml.def define typed pointers to the real functions, which are looked up once the driver's
 * library is in the process.
 * A call of a function that the driver lacks returns CUDA_ERROR_NOT_FOUND or NVML_ERROR_FUNCTION_NOT_FOUND: its pointer is never NULL.
 * Locks: none; threads that look up at the same time find the same. Fork: nothing changes; the driver stays mapped.
 */
#ifndef HAMI_HOOKS_H
#define HAMI_HOOKS_H

#include <stdatomic.h>
#include <stdbool.h>

#include "hami/cuda_abi.h"
#include "hami/nvml_abi.h"

#define HAMI_EXPORT __attribute__((visibility("default")))

/* How many rows there are. */
enum {
    HAMI_HOOKS = 0
#define HOOK(...) +1
#include "hooks_cuda.def"
#include "hooks_nvml.def"
#undef HOOK
};

enum hami_library { HAMI_LIBRARY_CUDA, HAMI_LIBRARY_NVML };

/* Functions that the library calls but does not hook. */
#define HAMI_CALLED_CUDA(X)              \
    X(cuCtxFromGreenCtx)                 \
    X(cuCtxGetDevice)                    \
    X(cuCtxGetCurrent)                   \
    X(cuCtxPushCurrent_v2)               \
    X(cuCtxPopCurrent_v2)                \
    X(cuCtxSetCurrent)                   \
    X(cuDeviceGetAttribute)              \
    X(cuDeviceGetCount)                  \
    X(cuDeviceGetDefaultMemPool)         \
    X(cuDeviceGetGraphMemAttribute)      \
    X(cuDeviceGetMemPool)                \
    X(cuDeviceGetUuid)                   \
    X(cuDeviceGetUuid_v2)                \
    X(cuDevicePrimaryCtxGetState)        \
    X(cuGraphChildGraphNodeGetGraph)     \
    X(cuGraphGetNodes)                   \
    X(cuGraphMemAllocNodeGetParams)      \
    X(cuGraphNodeGetType)                \
    X(cuMemAdvise)                       \
    X(cuMemGetAddressRange_v2)           \
    X(cuMemPoolGetAttribute)             \
    X(cuStreamGetCtx)                    \
    X(cuStreamGetCtx_ptsz)               \
    X(cuStreamIsCapturing)               \
    X(cuStreamIsCapturing_ptsz)          \
    X(cuStreamCreate)                    \
    X(cuThreadExchangeStreamCaptureMode) \
    X(cuEventCreate)                     \
    X(cuEventDestroy_v2)                 \
    X(cuEventRecord)                     \
    X(cuEventQuery)                      \
    X(cuEventElapsedTime)

#define HAMI_CALLED_NVML(X)                \
    X(nvmlInit_v2)                         \
    X(nvmlShutdown)                        \
    X(nvmlDeviceGetCount_v2)               \
    X(nvmlDeviceGetHandleByIndex_v2)       \
    X(nvmlDeviceGetHandleByUUID)           \
    X(nvmlDeviceGetMaxMigDeviceCount)      \
    X(nvmlDeviceGetMigDeviceHandleByIndex) \
    X(nvmlDeviceGetUUID)

struct hami_real {
#define HOOK(symbol, ...) __typeof__(&symbol) symbol;
#define HAMI_CALLED(symbol) __typeof__(&symbol) symbol;
#include "hooks_cuda.def"
#include "hooks_nvml.def"
    HAMI_CALLED_CUDA(HAMI_CALLED)
    HAMI_CALLED_NVML(HAMI_CALLED)
#undef HAMI_CALLED
#undef HOOK
};

/*
 * Pointers to the real functions. Those that the driver lacks, and all before they are looked up, point to a function that says
 * so. hami_hooks_load() and hami_hooks_find() fill them before they set hami_is_loaded.
 */
extern struct hami_real hami_real;

extern _Atomic bool hami_is_loaded[2];

/* The real function behind a symbol. Loads the driver's library if necessary. */
#define HAMI_REAL(library, symbol)                                                                       \
    ((void)(__builtin_expect(atomic_load_explicit(&hami_is_loaded[library], memory_order_acquire), 1) || \
            hami_hooks_load(library)),                                                                   \
     hami_real.symbol)
#define HAMI_REAL_CUDA(symbol) HAMI_REAL(HAMI_LIBRARY_CUDA, symbol)
#define HAMI_REAL_NVML(symbol) HAMI_REAL(HAMI_LIBRARY_NVML, symbol)

/* What stands in for functions that a library lacks. They ignore their arguments. */
CUresult hami_missing_cuda(void);
nvmlReturn_t hami_missing_nvml(void);

/* Whether the driver has a function, which is one of the pointers above. */
#define HAMI_HAS(function) ((void *)(function) != (void *)hami_missing_cuda && (void *)(function) != (void *)hami_missing_nvml)

/* Look up a library's functions, and load the library if it is not in the process. Returns false if it cannot be loaded. */
bool hami_hooks_load(enum hami_library library);

/* Do the same, but only if the library is in the process already: a lookup must not load it. */
bool hami_hooks_find(enum hami_library library);

/* One row of the tables. */
struct hami_hook_row {
    const char *symbol;
    int since; /* 0 for NVML */
    enum hami_library library;
    void *hook;
    void **real;
};

/*
 * All rows. hook_table.c supplies them, because they name functions of all folders. They are constant, because programs look up
 * symbols before this library's constructors have run.
 */
extern const struct hami_hook_row hami_hook_rows[HAMI_HOOKS];

/* Find the row of a symbol; NULL if there is none. Constant time; calls no driver. */
const struct hami_hook_row *hami_hook_of_symbol(const char *symbol);

/*
 * Find the row whose function the driver returned for `name`; NULL if there is none. If several symbols share the function, the
 * row is the one of that name. A driver that binds to its own symbols through the dynamic linker returns the hook itself.
 */
const struct hami_hook_row *hami_hook_of_answer(const char *name, const void *function);

/*
 * Find the row that the driver would choose for the name `name` of cuGetProcAddress: the newest that is not newer than `version`,
 * and the per-thread variant if it is requested and exists. NULL if the tables have none. Constant time.
 */
const struct hami_hook_row *hami_hook_of_name(const char *name, int version, bool is_per_thread);

/* Return the driver's function behind a row, or NULL. The row's library must have been found. */
void *hami_hook_real(const struct hami_hook_row *row);

/* Whether `address` is inside the driver's library. */
bool hami_is_driver_code(enum hami_library library, const void *address);

/*
 * Greater than 0 while this library calls the driver. Hooks then only forward, because a driver may call its own exported
 * functions, which are hooked.
 */
extern _Thread_local int hami_inside __attribute__((tls_model("initial-exec")));

#define HAMI_INSIDE(expression)                             \
    ({                                                      \
        hami_inside++;                                      \
        __typeof__(expression) hami_result_ = (expression); \
        hami_inside--;                                      \
        hami_result_;                                       \
    })

#endif
