/*
 * What the tests of the region share: a file with two devices of 1 MiB each, and a child process for each test.
 */
#ifndef HAMI_REGION_TEST_H
#define HAMI_REGION_TEST_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "region.h"
#include "region_file.h"
#include "region_map.h"

enum { LIMIT = 1 << 20, PIECE = 4096 };

static char path[256];

static inline void two_devices(struct hami_inventory *inventory)
{
    inventory->count = 2;
    strcpy(inventory->uuids[0], "GPU-a");
    strcpy(inventory->uuids[1], "GPU-b");
}

static inline int exit_status(pid_t child)
{
    int status = -1;

    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Each body has its own file, and runs in a child of a process that never touched the region. */
static inline void in_child(void (*body)(void))
{
    pid_t child;

    unlink(path);
    child = fork();
    if (child == 0) {
        check_failed = 0;
        body();
        fflush(stdout);
        _exit(check_failed ? 1 : 0);
    }
    CHECK_EQUAL(0, exit_status(child));
}

static inline double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void fill_table(struct hami_region *region)
{
    for (int index = 0; index < HAMI_SLOTS_MAX; index++) {
        region->procs[index].pid = getppid();
        region->procs[index].status = HAMI_SLOT_RUNNING;
    }
    region->proc_num = HAMI_SLOTS_MAX;
}

/* Name the file, and set the limits before the library reads them. */
static inline void begin_region_test(void)
{
    snprintf(path, sizeof(path), "/tmp/hami-region-test-%d.cache", (int)getpid());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1m", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    umask(077);
}

static inline int end_region_test(void)
{
    unlink(path);
    return check_failures();
}

#endif
