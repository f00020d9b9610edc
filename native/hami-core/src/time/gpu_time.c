#include "gpu_time.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file_space.h"
#include "log.h"
#include "options.h"

static struct hami_gpu_time *_Atomic mapped;

static struct hami_gpu_time *map_file(void)
{
    char path[PATH_MAX];
    void *address;
    int file = -1;

    if (!hami_options()->region_path[0])
        return MAP_FAILED;
    if (snprintf(path, sizeof(path), "%s" HAMI_GPU_TIME_SUFFIX, hami_options()->region_path) < (int)sizeof(path))
        file = hami_file_open_shared(path, (off_t)sizeof(struct hami_gpu_time));
    if (file < 0) {
        hami_log(HAMI_LOG_WARNING, "%s: cannot be used: %s; SM limits hold for each process by itself", path, strerror(errno));
        return MAP_FAILED;
    }
    address = mmap(NULL, sizeof(struct hami_gpu_time), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return address;
}

static struct hami_gpu_time *map_any(void)
{
    void *address = map_file();

    if (address == MAP_FAILED)
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
