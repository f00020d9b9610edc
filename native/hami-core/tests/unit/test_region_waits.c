/*
 * How long the region waits for another process that has its lock and never gives it back, and what it does then.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>

#include "region_limits.h"
#include "region_test.h"

/* Start a process that locks bytes of the region's file, and stop it. */
static pid_t start_stuck_holder_of(off_t first, off_t bytes)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = bytes};
    int ready[2];
    char byte;
    pid_t holder;

    CHECK(pipe(ready) == 0);
    holder = fork();
    if (holder == 0) {
        CHECK(fcntl(open(path, O_RDWR | O_CREAT, 0666), F_SETLK, &range) == 0);
        CHECK(write(ready[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    kill(holder, SIGSTOP);
    return holder;
}

/* Lock the region as HAMi's lockf() does. */
static pid_t start_stuck_holder(void)
{
    return start_stuck_holder_of(0, sizeof(struct hami_region));
}

/* Check what the region counts of the waits for a reason: how many, and that the longest and all took so many seconds. */
static void check_waits(enum hami_wait_reason reason, unsigned count, double seconds)
{
    uint64_t ns = hami_region()->procs[0].used[2 * reason].waits, counts = hami_region()->procs[0].used[2 * reason + 1].waits;

    CHECK_EQUAL(count, counts >> 32);
    CHECK(ns >= seconds * 1e9 && ns < seconds * 1e9 + 1e9);
    CHECK((counts & UINT32_MAX) >= seconds * 1e6 && (counts & UINT32_MAX) <= ns / 1000);
}

static void end_holder(pid_t holder)
{
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
}

static void new_region_whose_lock_is_never_free_gives_nothing(void)
{
    pid_t holder = start_stuck_holder();
    double began = seconds_now();

    hami_region_attach(two_devices);
    CHECK(seconds_now() - began >= 9);
    CHECK(hami_region() != NULL);
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        CHECK(!hami_region_charge(device, PIECE));
    CHECK_EQUAL(1, hami_region_core_percent(0));
    check_waits(HAMI_WAIT_REGION, 1, 10);
    end_holder(holder);
}

static void ready_region_is_used_without_its_lock(void)
{
    pid_t holder;

    if (fork() == 0) {
        hami_region_attach(two_devices);
        _exit(0);
    }
    CHECK(wait(NULL) > 0);
    holder = start_stuck_holder();
    hami_region_attach(two_devices);
    CHECK(hami_region_charge(1, PIECE));
    CHECK(!hami_region_is_private());
    check_waits(HAMI_WAIT_REGION, 0, 0);
    end_holder(holder);
}

static void context_of_a_stuck_process_is_waited_for_ten_seconds(void)
{
    pid_t holder;

    hami_region_attach(two_devices);
    holder = start_stuck_holder_of(0x40000000, 1); /* HAMi's byte for contexts */
    CHECK(!hami_region_lock_contexts(1));
    check_waits(HAMI_WAIT_CONTEXT, 1, 10);
    end_holder(holder);
}

static void devices_that_cannot_be_added_are_refused(void)
{
    pid_t holder;
    int device;

    hami_region_attach(two_devices);
    holder = start_stuck_holder();
    CHECK(!hami_region_renew_inventory(two_devices));
    device = hami_region_refused_device();
    CHECK_EQUAL(HAMI_DEVICES_MAX - 1, device);
    CHECK(!hami_region_charge(device, PIECE));
    CHECK(hami_region_charge(0, PIECE));
    end_holder(holder);
}

static void devices_that_are_replaced_for_too_long_are_refused(void)
{
    pid_t holder;

    hami_region_attach(two_devices);
    hami_region()->sem.is_replacing = 1;
    holder = start_stuck_holder();
    CHECK(!hami_region_join());
    check_waits(HAMI_WAIT_REGION, 1, 10);
    end_holder(holder);
    CHECK(hami_region_join());
}

static void memory_of_the_dead_stays_counted_while_nobody_can_sweep(void)
{
    pid_t dead, holder;

    hami_region_attach(two_devices);
    dead = fork();
    if (dead == 0) {
        hami_region_forget();
        CHECK(hami_region_charge(0, LIMIT));
        raise(SIGKILL);
    }
    waitpid(dead, NULL, 0);
    holder = start_stuck_holder();
    CHECK(!hami_region_charge(0, PIECE));
    CHECK(hami_region_charge(1, PIECE));
    end_holder(holder);
    CHECK(hami_region_charge(0, PIECE));
}

static void never_answers(struct hami_inventory *inventory)
{
    (void)inventory;
    for (;;)
        pause();
}

/* The other process may be anywhere before or in the driver. */
static void driver_that_does_not_answer_one_process_stops_no_other(void)
{
    pid_t asking = fork();

    if (asking == 0) {
        hami_region_attach(never_answers);
        _exit(1);
    }
    nanosleep(&(struct timespec){0, 200000000}, NULL);
    hami_region_attach(two_devices);
    CHECK(!hami_region_is_private());
    CHECK(hami_region_charge(0, PIECE));
    end_holder(asking);
}

static void (*const bodies[])(void) = {
    new_region_whose_lock_is_never_free_gives_nothing,      ready_region_is_used_without_its_lock,
    context_of_a_stuck_process_is_waited_for_ten_seconds,   devices_that_cannot_be_added_are_refused,
    devices_that_are_replaced_for_too_long_are_refused,     memory_of_the_dead_stays_counted_while_nobody_can_sweep,
    driver_that_does_not_answer_one_process_stops_no_other,
};
enum { BODIES = sizeof(bodies) / sizeof(bodies[0]) };

/* They sleep nearly all the time, so they run at once, each with a file. */
int main(void)
{
    pid_t children[BODIES];

    for (int body = 0; body < BODIES; body++) {
        children[body] = fork();
        if (children[body] == 0) {
            begin_region_test();
            bodies[body]();
            fflush(stdout);
            _exit(end_region_test());
        }
    }
    for (int body = 0; body < BODIES; body++)
        CHECK_EQUAL(0, exit_status(children[body]));
    return check_failures();
}
