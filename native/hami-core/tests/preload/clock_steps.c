/*
 * A wall clock that is set back by an hour at every fourth reading. The monotonic clock goes on.
 */
#include <dlfcn.h>
#include <stdatomic.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { READINGS = 4, STEP_SECONDS = 3600 };

static time_t set_back(void)
{
    static _Atomic time_t readings;

    return atomic_fetch_add(&readings, 1) / READINGS * STEP_SECONDS;
}

EXPORT time_t time(time_t *result)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*_Atomic real)(clockid_t, struct timespec *);
    int (*function)(clockid_t, struct timespec *) = atomic_load(&real);
    int result;

    if (!function) {
        function = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
        atomic_store(&real, function);
    }
    result = function(clock, now);
    if (result == 0 && clock == CLOCK_REALTIME)
        now->tv_sec -= set_back();
    return result;
}
