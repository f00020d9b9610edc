/*
 * Bugs that the judge of random programs must find. Preloaded before libvgpu.so, whose hooks it calls.
 *
 * PLANTED names one: `refuse` refuses every 50th allocation, `forget` drops a part of the account after every 50th, `leak` adds to it,
 * and `late` charges what an allocation takes only after the driver has given it.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hami/cuda_abi.h"
#include "hami/region.h"

#define EXPORT __attribute__((visibility("default")))
#define LARGE ((uint64_t)64 << 20)

enum { EVERY = 50 };

static bool is_planted(const char *bug)
{
    const char *planted = getenv("PLANTED");

    return planted && strcmp(planted, bug) == 0;
}

/* Return what this process is charged on the first device; NULL before it has a slot. */
static _Atomic uint64_t *own_total(void)
{
    static struct hami_region *_Atomic region;

    if (!atomic_load(&region)) {
        int file = open(getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE"), O_RDWR | O_CLOEXEC);
        void *mapped = mmap(NULL, sizeof(struct hami_region), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

        close(file);
        if (mapped == MAP_FAILED)
            return NULL;
        atomic_store(&region, mapped);
    }
    for (int index = 0; index < HAMI_SLOTS_MAX; index++)
        if (atomic_load(&atomic_load(&region)->procs[index].pid) == (int32_t)getpid())
            return &atomic_load(&region)->procs[index].used[0].total;
    return NULL;
}

static void add(uint64_t bytes)
{
    _Atomic uint64_t *total = own_total();

    if (total)
        atomic_fetch_add(total, bytes);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
    static __typeof__(&cuMemAlloc_v2) _Atomic hook;
    static _Atomic unsigned int calls;
    bool is_turn = atomic_fetch_add(&calls, 1) % EVERY == EVERY - 1, is_late = is_planted("late");
    CUresult result;

    if (!atomic_load(&hook))
        atomic_store(&hook, (__typeof__(&cuMemAlloc_v2))dlsym(RTLD_NEXT, "cuMemAlloc_v2"));
    if (is_turn && is_planted("refuse"))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (is_late)
        add(-LARGE);
    result = atomic_load(&hook)(pointer, bytes);
    if (is_late)
        add(LARGE);
    if (is_turn && result == CUDA_SUCCESS && (is_planted("leak") || is_planted("forget")))
        add(is_planted("leak") ? LARGE : -LARGE);
    return result;
}
