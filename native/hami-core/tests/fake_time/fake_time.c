/*
 * The functions of libc that read clocks, sleep, and make, end or wait for threads and processes, with another clock.
 *
 * Owns the choice of the clock and the translation of libc's arguments. The machine's clock is used until the library's constructor
 * has read FAKE_TIME.
 */
#include "fake_time.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "virtual_clock.h"

#define EXPORT __attribute__((visibility("default")))
#define SECOND_NS 1000000000u
/* 2026-01-01: the wall clock is this far ahead of the virtual clock. */
#define WALL_CLOCK_NS (1767225600u * (uint64_t)SECOND_NS)

/* The C library's function. */
#define REAL(name) ((__typeof__(&name))real_function(&real_##name, #name))
#define DECLARE_REAL(name) static void *real_##name

enum { THREADS_MAX = 4096 };

enum mode { FORWARD, VIRTUAL, SCALED };

struct start {
    void *(*routine)(void *);
    void *argument;
    int thread;
};

static enum mode mode;
static double factor;
static pthread_key_t thread_key;
static pthread_t handles[THREADS_MAX]; /* of this process's threads, by their number on the clock */

DECLARE_REAL(clock_gettime);
DECLARE_REAL(clock_nanosleep);
DECLARE_REAL(pthread_create);
DECLARE_REAL(pthread_join);
DECLARE_REAL(sched_yield);
DECLARE_REAL(waitpid);

static void *real_function(void **cached, const char *name)
{
    void *function = __atomic_load_n(cached, __ATOMIC_RELAXED);

    if (!function) {
        function = dlsym(RTLD_NEXT, name);
        __atomic_store_n(cached, function, __ATOMIC_RELAXED);
    }
    return function;
}

static uint64_t to_ns(const struct timespec *time)
{
    return (uint64_t)time->tv_sec * SECOND_NS + (uint64_t)time->tv_nsec;
}

static struct timespec to_timespec(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND_NS), (long)(ns % SECOND_NS)};
}

static bool is_wall(clockid_t clock)
{
    return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE || clock == CLOCK_TAI;
}

static bool is_affected(clockid_t clock)
{
    return mode != FORWARD && (is_wall(clock) || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW ||
                               clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME);
}

/* Clocks */

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;

    if (mode == VIRTUAL)
        return virtual_clock_now() + (is_wall(clock) ? WALL_CLOCK_NS : 0);
    REAL(clock_gettime)(clock, &now);
    return mode == SCALED ? (uint64_t)((double)to_ns(&now) * factor) : to_ns(&now);
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!is_affected(clock))
        return REAL(clock_gettime)(clock, now);
    *now = to_timespec(now_ns(clock));
    return 0;
}

EXPORT int gettimeofday(struct timeval *now, void *zone)
{
    uint64_t ns = now_ns(CLOCK_REALTIME);

    if (zone)
        memset(zone, 0, sizeof(struct timezone));
    *now = (struct timeval){(time_t)(ns / SECOND_NS), (suseconds_t)(ns % SECOND_NS / 1000)};
    return 0;
}

EXPORT time_t time(time_t *now)
{
    time_t seconds = (time_t)(now_ns(CLOCK_REALTIME) / SECOND_NS);

    if (now)
        *now = seconds;
    return seconds;
}

/* Sleeps */

static int sleep_scaled(clockid_t clock, uint64_t duration_ns)
{
    struct timespec duration = to_timespec((uint64_t)((double)duration_ns / factor));

    return REAL(clock_nanosleep)(clock == CLOCK_TAI ? CLOCK_REALTIME : CLOCK_MONOTONIC, 0, &duration, NULL);
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *request, struct timespec *remaining)
{
    uint64_t now, until;

    if (!is_affected(clock))
        return REAL(clock_nanosleep)(clock, flags, request, remaining);
    if (request->tv_sec < 0 || request->tv_nsec < 0 || request->tv_nsec >= (long)SECOND_NS)
        return EINVAL;
    now = now_ns(clock);
    until = flags & TIMER_ABSTIME ? to_ns(request) : now + to_ns(request);
    if (mode == SCALED)
        return sleep_scaled(clock, until > now ? until - now : 0);
    virtual_clock_sleep_until(is_wall(clock) && until >= WALL_CLOCK_NS ? until - WALL_CLOCK_NS : until);
    return 0;
}

EXPORT int nanosleep(const struct timespec *request, struct timespec *remaining)
{
    int result = clock_nanosleep(CLOCK_MONOTONIC, 0, request, remaining);

    if (result != 0)
        errno = result;
    return result ? -1 : 0;
}

EXPORT int usleep(useconds_t microseconds)
{
    struct timespec duration = to_timespec((uint64_t)microseconds * 1000);

    return nanosleep(&duration, NULL);
}

EXPORT unsigned int sleep(unsigned int seconds)
{
    struct timespec duration = {(time_t)seconds, 0}, remaining = {0, 0};

    return nanosleep(&duration, &remaining) == 0 ? 0 : (unsigned int)remaining.tv_sec;
}

/* A thread that yields waits for another one to progress, so it lets others run. */
EXPORT int sched_yield(void)
{
    if (mode != VIRTUAL || !virtual_clock_is_inside())
        return REAL(sched_yield)();
    virtual_clock_sleep_until(0);
    return 0;
}

/* Threads */

static void end_thread(void *value)
{
    handles[(intptr_t)value - 1] = 0;
    virtual_clock_leave();
}

static void *start_thread(void *argument)
{
    struct start start = *(struct start *)argument;

    free(argument);
    virtual_clock_adopt(start.thread);
    pthread_setspecific(thread_key, (void *)((intptr_t)start.thread + 1));
    return start.routine(start.argument);
}

/* The creator continues, so the new thread waits until it may run, and cannot end before its handle is stored. */
static int create_virtual(pthread_t *handle, const pthread_attr_t *attributes, struct start *start)
{
    int thread = start->thread; /* the new thread frees `start` */
    int result = REAL(pthread_create)(handle, attributes, start_thread, start);

    if (result == 0) {
        handles[thread] = *handle;
        return 0;
    }
    virtual_clock_drop(thread);
    free(start);
    return result;
}

EXPORT int pthread_create(pthread_t *handle, const pthread_attr_t *attributes, void *(*routine)(void *), void *argument)
{
    int thread = mode == VIRTUAL && virtual_clock_is_inside() ? virtual_clock_reserve() : -1;
    struct start *start = thread >= 0 ? malloc(sizeof(*start)) : NULL;

    if (start) {
        *start = (struct start){routine, argument, thread};
        return create_virtual(handle, attributes, start);
    }
    if (thread >= 0)
        virtual_clock_drop(thread);
    return REAL(pthread_create)(handle, attributes, routine, argument);
}

EXPORT int pthread_join(pthread_t handle, void **value)
{
    for (int thread = 0; mode == VIRTUAL && thread < THREADS_MAX; thread++)
        if (handles[thread] && pthread_equal(handles[thread], handle))
            virtual_clock_await(thread);
    return REAL(pthread_join)(handle, value);
}

EXPORT pid_t waitpid(pid_t pid, int *status, int options)
{
    bool takes_part = mode == VIRTUAL && !(options & WNOHANG) && virtual_clock_is_inside();
    pid_t result;
    int error;

    if (takes_part)
        virtual_clock_leave();
    result = REAL(waitpid)(pid, status, options);
    error = errno;
    if (takes_part)
        virtual_clock_enter();
    errno = error;
    return result;
}

/* Start, end, and threads that do not take part */

EXPORT void fake_time_leave(void)
{
    if (mode == VIRTUAL)
        virtual_clock_leave();
}

EXPORT void fake_time_join(void)
{
    if (mode == VIRTUAL)
        virtual_clock_enter();
}

EXPORT bool fake_time_is_virtual(void)
{
    return mode == VIRTUAL;
}

static void refuse(const char *setting)
{
    fprintf(stderr, "fake time: FAKE_TIME is \"%s\", not virtual, virtual:<processes> or scaled:<factor>\n", setting);
    abort();
}

static void start_virtual(int processes)
{
    const char *folder = getenv("FAKE_DRIVER_DIR"), *rank = getenv("FAKE_TIME_RANK");

    if (!virtual_clock_open(folder && folder[0] ? folder : NULL, processes, rank ? (int)strtol(rank, NULL, 10) : -1)) {
        fprintf(stderr, "fake time: cannot open the clock of %s: %s\n", folder ? folder : "this process", strerror(errno));
        abort();
    }
    pthread_key_create(&thread_key, end_thread);
    mode = VIRTUAL;
    virtual_clock_enter();
}

__attribute__((constructor)) static void start(void)
{
    const char *setting = getenv("FAKE_TIME");
    int processes = 1;

    if (!setting || !setting[0])
        return;
    if (strcmp(setting, "virtual") == 0 || sscanf(setting, "virtual:%d", &processes) == 1) {
        start_virtual(processes);
    } else if (sscanf(setting, "scaled:%lf", &factor) == 1 && factor > 0) {
        mode = SCALED;
    } else {
        refuse(setting);
    }
}

__attribute__((destructor)) static void stop(void)
{
    if (mode == VIRTUAL)
        virtual_clock_close();
}
