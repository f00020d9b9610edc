/*
 * The start, the forks and the end of this library in a process. It tells the folders below, which do not know of each other's
 * state.
 *
 * Nothing happens until a hooked function is called: no file, thread, handler or output. Then, once: parse the options, register
 * the fork handler, attach the region. A process that calls cuInit claims a slot.
 */
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "account.h"
#include "context.h"
#include "devices.h"
#include "graph.h"
#include "hooks.h"
#include "inventory.h"
#include "limiter.h"
#include "lock_rank.h"
#include "log.h"
#include "lookup.h"
#include "options.h"
#include "region.h"
#include "region_file.h"
#include "region_map.h"
#include "unhooked_loads.h"

static pthread_once_t fork_watched = PTHREAD_ONCE_INIT;

static void forget_parent(void)
{
    hami_inside = 0;
    hami_ranks_forget();
    hami_devices_forget();
    hami_region_forget();
    hami_limiter_forget();
    hami_memory_forget();
    hami_graphs_forget();
    hami_contexts_forget();
}

/*
 * pthread_atfork as glibc implements it (Linux Standard Base, libc). It is weak because musl's loader ends a program that misses a
 * symbol. No NVIDIA driver runs on musl, so no process there needs it.
 */
extern int __register_atfork(void (*prepare)(void), void (*parent)(void), void (*child)(void), void *library) __attribute__((weak));
extern void *__dso_handle;

static void watch_fork(void)
{
    if (__register_atfork)
        __register_atfork(NULL, NULL, forget_parent, __dso_handle);
}

/* The fork handler is registered before any lock is taken, because another thread may fork at any time. */
static bool start(void)
{
    if (hami_region())
        return true;
    if (hami_options()->is_disabled)
        return false;
    pthread_once(&fork_watched, watch_fork);
    hami_region_attach(hami_list_devices);
    return hami_region() != NULL;
}

bool (*const hami_start)(void) = start;

static bool is_driver(const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;

    return strncmp(name, "libcuda.so", 10) == 0 || strncmp(name, "libnvidia-ml.so", 15) == 0;
}

/*
 * Programs open libraries before anything else is started, so this starts nothing but the options; then it is counted when the
 * process first uses the driver. A process that opens the driver itself elsewhere may never use the one that is hooked.
 */
static void tell_unhooked_load(enum hami_unhooked_load what, const char *file)
{
    if (hami_options()->is_disabled)
        return;
    hami_unhooked_loads_add(what);
    if (is_driver(file))
        start();
    if (what == HAMI_OTHER_NAMESPACE)
        hami_log(HAMI_LOG_WARNING, "%s: opened with dlmopen; what it takes of a device is not limited", file);
    else
        hami_log(HAMI_LOG_WARNING, "%s: a second copy of the driver; what is taken through it is not limited", file);
}

void (*const hami_tell_unhooked_load)(enum hami_unhooked_load, const char *) = tell_unhooked_load;

/* The folder has a link for each thread beside the two that each folder has. */
static bool is_only_thread(void)
{
    struct stat tasks;

    return stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink == 3;
}

/* Other threads run on while a process ends: the program's, and the limiter's. */
__attribute__((destructor)) static void leave(void)
{
    if (!hami_region())
        return;
    if (is_only_thread())
        hami_region_release();
    else
        hami_region_release_later();
}

HAMI_EXPORT CUresult cuInit(unsigned int flags)
{
    CUresult result = HAMI_INSIDE(HAMI_REAL_CUDA(cuInit)(flags));

    if (result == CUDA_SUCCESS && !hami_inside && hami_match_devices())
        hami_region_slot();
    return result;
}
