#include "gpu_time.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "file_space.h"
#include "options.h"

static struct hami_gpu_time *_Atomic mapped;

static struct hami_gpu_time *map_any(void)
{
    void *address = NULL;

    if (hami_options()->region_path[0])
        address = hami_file_map_beside_region(HAMI_GPU_TIME_SUFFIX, sizeof(struct hami_gpu_time),
                                              "SM limits hold for each process by itself");
    if (!address)
        address = mmap(NULL, sizeof(struct hami_gpu_time), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

/* If two threads map the file at the same time, one mapping is kept. */
struct hami_gpu_time *hami_gpu_time(void)
{
    struct hami_gpu_time *shared = atomic_load_explicit(&mapped, memory_order_acquire), *fresh;

    if (shared || !(fresh = map_any()))
        return shared;
    if (atomic_compare_exchange_strong(&mapped, &shared, fresh))
        return fresh;
    munmap(fresh, sizeof(*fresh));
    return shared;
}
