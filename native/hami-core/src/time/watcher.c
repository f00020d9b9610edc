#include "watcher.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include "clock.h"
#include "driver.h"
#include "hooks.h"
#include "log.h"
#include "nvml_scale.h"
#include "region.h"
#include "stream.h"

/* How often the device is asked: a small part of what may be queued. */
#define TICK_NS 2000000u

/* The thread ends after this long without launches. */
#define LINGER_NS 1000000000u

/* How often the use is written for the monitor, which reads it every few seconds. */
#define PUBLISH_NS 500000000u

/* The driver's calls need more than the minimum. */
#define STACK_BYTES 262144u

static _Atomic bool is_running, is_wanted;

static uint64_t published_ns[HAMI_DEVICES_MAX];

static bool collect(const struct hami_limits *limits, uint64_t now_ns)
{
    bool is_ahead = false;

    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        if (!hami_streams_are_on(device))
            continue;
        if (!hami_meter_lock(device)) {
            is_ahead = true;
            continue;
        }
        is_ahead |= hami_streams_collect(&(struct hami_device_now){device, limits->percent[device], now_ns});
        hami_meter_unlock(device);
    }
    return is_ahead;
}

/* Write this process's share of each device's time, in percent, where the monitor adds them up. */
static void publish(uint64_t elapsed_ns)
{
    struct hami_slot *slot = hami_region_slot();

    for (int device = 0; slot && device < HAMI_DEVICES_MAX; device++) {
        uint64_t own = hami_meters[device].own_ns, percent = (own - published_ns[device]) * 100 / (elapsed_ns + 1);

        published_ns[device] = own;
        if (percent || slot->device_use[device].sm)
            __atomic_store_n(&slot->device_use[device].sm, percent < 100 ? percent : 100, __ATOMIC_RELAXED);
    }
}

static void *watch(void *argument)
{
    hami_read_limits *read_limits = (hami_read_limits *)(uintptr_t)argument;
    uint64_t now = hami_now_ns(), told = now, wanted = now;
    struct hami_limits limits;

    hami_inside++;
    hami_relax_capture_mode();
    do {
        hami_sleep_ns(TICK_NS);
        now = hami_now_ns();
        if (atomic_exchange(&is_wanted, false))
            wanted = now;
        read_limits(&limits);
        if (collect(&limits, now))
            wanted = now;
        hami_nvml_scale_follow(&limits, now);
        if (now - told < PUBLISH_NS)
            continue;
        publish(now - told);
        told = now;
    } while (now - wanted < LINGER_NS);
    publish(LINGER_NS);
    atomic_store(&is_running, false);
    return NULL;
}

static void start(hami_read_limits *read_limits)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;

    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, &attributes, watch, (void *)(uintptr_t)read_limits) != 0) {
        hami_log(HAMI_LOG_ERROR, "no thread could be started to measure launches; they are charged by estimates");
        atomic_store(&is_running, false);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
}

void hami_watcher_wake(hami_read_limits *read_limits)
{
    if (!atomic_load_explicit(&is_wanted, memory_order_relaxed))
        atomic_store(&is_wanted, true);
    if (!atomic_load_explicit(&is_running, memory_order_relaxed) && !atomic_exchange(&is_running, true))
        start(read_limits);
}

void hami_watcher_forget(void)
{
    atomic_store(&is_running, false);
    memset(published_ns, 0, sizeof(published_ns));
    hami_nvml_scale_forget();
}
