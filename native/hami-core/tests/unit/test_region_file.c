/*
 * The region file: a new one, one of an older layout, a damaged one, and a path that cannot be used.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "region_test.h"

static bool are_locks_refused;

/* In place of the C library's, for a profile that refuses locks which belong to an open file. */
int fcntl(int file, int command, ...)
{
    va_list arguments;
    void *argument;

    va_start(arguments, command);
    argument = va_arg(arguments, void *);
    va_end(arguments);
    if (are_locks_refused && (command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK)) {
        errno = EPERM;
        return -1;
    }
    return (int)syscall(SYS_fcntl, file, command, argument);
}

static void fresh_file(void)
{
    hami_region_attach(two_devices);
    struct hami_region *region = hami_region();
    struct stat status;

    CHECK(stat(path, &status) == 0 && status.st_size == 2008953);
    CHECK_EQUAL(0666, status.st_mode & 0777);
    CHECK_EQUAL(HAMI_REGION_MAGIC, region->initialized_flag);
    CHECK_EQUAL(2, region->device_count);
    CHECK_EQUAL(1, hami_region_device("GPU-b"));
    CHECK_EQUAL(-1, hami_region_device("GPU-c"));
    CHECK_EQUAL(-1, hami_region_device(""));
    CHECK_EQUAL(LIMIT, region->limit[0]);
    CHECK_EQUAL(1, region->sem.value);
    CHECK_EQUAL(128, region->sem.shared);
    CHECK_EQUAL(1, region->utilization_switch);
    CHECK_EQUAL(2, region->recent_kernel);
    CHECK_EQUAL(0, region->proc_num);
}

static void three_devices(struct hami_inventory *inventory)
{
    inventory->count = 3;
    strcpy(inventory->uuids[0], "GPU-c");
    strcpy(inventory->uuids[1], "GPU-b");
    strcpy(inventory->uuids[2], "GPU-a");
}

/* Processes identify a device by its index, so indices change only when no other process is there. */
static void known_devices_keep_their_indices(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    region->procs[0].pid = getppid();
    region->procs[0].status = HAMI_SLOT_RUNNING;
    region->proc_num = 1;
    hami_region_renew_inventory(three_devices);
    CHECK_EQUAL(0, hami_region_device("GPU-a"));
    CHECK_EQUAL(2, hami_region_device("GPU-c"));
    CHECK_EQUAL(3, region->device_count);
    region->proc_num = 0;
    hami_region_renew_inventory(three_devices);
    CHECK_EQUAL(0, hami_region_device("GPU-c"));
    CHECK_EQUAL(2, hami_region_device("GPU-a"));
}

/* A process with a new device and another environment adds its device, and leaves the limits that others have. */
static void limits_that_others_have_stay_when_a_device_is_added(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    region->limit[0] = 7 * PIECE;
    region->sm_limit[0] = 30;
    region->procs[0].pid = getppid();
    region->procs[0].status = HAMI_SLOT_RUNNING;
    region->proc_num = 1;
    hami_region_renew_inventory(three_devices);
    CHECK_EQUAL(7 * PIECE, region->limit[0]);
    CHECK_EQUAL(30, region->sm_limit[0]);
    CHECK_EQUAL(LIMIT, region->limit[2]);
    region->proc_num = 0;
    hami_region_renew_inventory(three_devices);
    CHECK_EQUAL(LIMIT, region->limit[0]);
}

/* What a process does that knows two of the devices: claim a slot, read the devices, ask for them again if they are not there. */
static int join_and_find(const char *uuid)
{
    int device;

    CHECK(hami_region_join());
    device = hami_region_device(uuid);
    if (device >= 0)
        return device;
    CHECK(hami_region_renew_inventory(two_devices));
    return hami_region_device(uuid);
}

#define STAY_SECONDS 0.003 /* as long as the other process looks at all */

static void come_and_go_until(double end)
{
    while (seconds_now() < end) {
        int device = join_and_find("GPU-a");

        for (double left = seconds_now() + STAY_SECONDS; seconds_now() < left;)
            CHECK_EQUAL(device, hami_region_device("GPU-a"));
        hami_region_release();
    }
}

static void renew_until(double end)
{
    CHECK(hami_region_join());
    while (seconds_now() < end) {
        CHECK(hami_region_renew_inventory(three_devices));
        CHECK(hami_region_renew_inventory(two_devices));
    }
}

/* Processes that have ended before and behind two slots, so that a look at all of them takes milliseconds. */
static void fill_with_the_dead(struct hami_region *region)
{
    pid_t dead = fork();

    if (dead == 0)
        _exit(0);
    CHECK_EQUAL(0, exit_status(dead));
    fill_table(region);
    for (int index = 0; index < HAMI_SLOTS_MAX; index++)
        region->procs[index].pid = index / 2 == HAMI_SLOTS_MAX / 4 ? 0 : dead;
}

/*
 * A process that attaches takes no lock, so it may come between the renewer's look at the others and its new list. One of the two
 * reads that the other is there. So a device never changes or leaves its place while a process uses it.
 */
static void device_of_a_process_that_comes_during_a_renewal_keeps_its_place(void)
{
    double end = seconds_now() + 2;
    pid_t other;

    hami_region_attach(two_devices);
    fill_with_the_dead(hami_region());
    other = fork();
    if (other == 0) {
        hami_region_forget();
        renew_until(end);
        _exit(check_failed ? 1 : 0);
    }
    come_and_go_until(end);
    CHECK_EQUAL(0, exit_status(other));
}

/* While a process has the lock, no other one replaces the devices. So the next process can end what the killed one began. */
static void devices_can_be_used_after_a_process_was_killed_while_it_replaced_them(void)
{
    hami_region_attach(two_devices);
    hami_region()->sem.is_replacing = 1;
    CHECK(hami_region_join());
    CHECK_EQUAL(0, hami_region()->sem.is_replacing);
    CHECK_EQUAL(1, hami_region_device("GPU-b"));
}

static void write_file(const void *bytes, size_t size, off_t file_size)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    CHECK(ftruncate(file, file_size) == 0);
    CHECK(pwrite(file, bytes, size, 0) == (ssize_t)size);
    close(file);
}

static void half_written_file_is_started_over(void)
{
    static const char noise[300] = "not a region at all";

    write_file(noise, sizeof(noise), 300);
    fresh_file();
}

static void old_file_without_owner_is_started_over(void)
{
    const int32_t header[] = {HAMI_REGION_MAGIC, 1, 1};

    write_file(header, sizeof(header), 2008985);
    fresh_file();
}

/* The layout of HAMi 2.8.1 with a live owner in its first slot. */
static void old_file_in_use_is_not_changed(void)
{
    const int32_t header[] = {HAMI_REGION_MAGIC, 1, 1};
    const int32_t one = 1, owner = getppid();
    struct stat status;
    int file;

    write_file(header, sizeof(header), 2008985);
    file = open(path, O_RDWR);
    CHECK(pwrite(file, &one, sizeof(one), 2008928) == sizeof(one));
    CHECK(pwrite(file, &owner, sizeof(owner), 1888) == sizeof(owner));
    close(file);
    hami_region_attach(two_devices);
    CHECK(stat(path, &status) == 0 && status.st_size == 2008985);
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, 1));
}

static void limit_holds_with_an_unusable_path(void)
{
    unlink(path);
    mkdir(path, 0700);
    hami_region_attach(two_devices);
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, 1));
    rmdir(path);
}

/* The kernel would end the process with SIGXFSZ if it tried to make the file longer. */
/* A process without locks cannot take part in a region. It keeps to the limit by itself. */
static void limit_holds_without_locks(void)
{
    are_locks_refused = true;
    hami_region_attach(two_devices);
    CHECK(hami_region() != NULL);
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, PIECE));
    hami_region_discharge(0, LIMIT);
    CHECK(hami_region_charge(0, PIECE));
}

static void limit_of_a_ready_region_holds_without_locks(void)
{
    pid_t other = fork();

    if (other == 0) {
        hami_region_attach(two_devices);
        CHECK(hami_region_charge(0, PIECE));
        pause();
    }
    while (access(path, F_OK) != 0 || hami_region_used(0) != PIECE) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        if (access(path, F_OK) == 0)
            hami_region_attach(two_devices);
    }
    are_locks_refused = true;
    CHECK(!hami_region_charge(0, LIMIT));
    CHECK(hami_region_charge(0, LIMIT - PIECE));
    CHECK(!hami_region_charge(0, PIECE));
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
}

static void process_that_may_not_write_so_large_a_file_stays_alone(void)
{
    const struct rlimit longest = {LIMIT, LIMIT};
    struct stat status;

    CHECK_EQUAL(0, setrlimit(RLIMIT_FSIZE, &longest));
    hami_region_attach(two_devices);
    CHECK(stat(path, &status) == 0 && status.st_size == 0);
    CHECK(hami_region_is_private());
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, 1));
}

/* An older version of this library left such files. What is in it stays. */
static void sparse_file_gets_its_space(void)
{
    const int32_t header[] = {HAMI_REGION_MAGIC, 1, 2, 7};
    struct stat status;

    write_file(header, sizeof(header), HAMI_REGION_FILE_BYTES);
    CHECK(stat(path, &status) == 0 && status.st_blocks * 512 < status.st_size);
    hami_region_attach(two_devices);
    CHECK(stat(path, &status) == 0 && status.st_blocks * 512 >= status.st_size);
    CHECK_EQUAL(HAMI_REGION_FILE_BYTES, status.st_size);
    CHECK_EQUAL(7, hami_region()->sm_init_flag);
}

int main(void)
{
    begin_region_test();
    in_child(fresh_file);
    in_child(known_devices_keep_their_indices);
    in_child(limits_that_others_have_stay_when_a_device_is_added);
    in_child(device_of_a_process_that_comes_during_a_renewal_keeps_its_place);
    in_child(devices_can_be_used_after_a_process_was_killed_while_it_replaced_them);
    in_child(half_written_file_is_started_over);
    in_child(old_file_without_owner_is_started_over);
    in_child(old_file_in_use_is_not_changed);
    in_child(limit_holds_with_an_unusable_path);
    in_child(limit_holds_without_locks);
    in_child(limit_of_a_ready_region_holds_without_locks);
    in_child(process_that_may_not_write_so_large_a_file_stays_alone);
    in_child(sparse_file_gets_its_space);
    return end_region_test();
}
