/*
 * The region between processes: simultaneous starts, deaths at any instruction, forks, full tables and files of other versions.
 *
 * The limit of every device is 1 MiB.
 */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../patience.h"
#include "check.h"
#include "liveness.h"
#include "region_file.h"

enum { PROCESSES = 64, CLAIMANTS = 8, LIMIT = 1 << 20, PIECE = 4096 };

static char path[256];

static void two_devices(struct hami_inventory *inventory)
{
    inventory->count = 2;
    strcpy(inventory->uuids[0], "GPU-a");
    strcpy(inventory->uuids[1], "GPU-b");
}

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static bool has_state(pid_t pid, char state)
{
    char path_of_stat[64], found = 0;
    FILE *file;

    snprintf(path_of_stat, sizeof(path_of_stat), "/proc/%d/stat", (int)pid);
    file = fopen(path_of_stat, "re");
    if (file && fscanf(file, "%*d (%*[^)]) %c", &found) != 1)
        found = 0;
    if (file)
        fclose(file);
    return found == state;
}

static int exit_status(pid_t child)
{
    int status = -1;

    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Each body has its own file, and runs in a child of a process that never touched the region. */
static void in_child(void (*body)(void))
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

static void the_limit_is_exact(void)
{
    hami_region_attach(two_devices);
    CHECK(!hami_region_charge(0, LIMIT + 1));
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, 1));
    CHECK(hami_region_charge(1, LIMIT));
    hami_region_discharge(0, 1);
    CHECK(hami_region_charge(0, 1));
    hami_region_discharge(0, 2ull * LIMIT);
    CHECK_EQUAL(0, hami_region_used(0));
    hami_region_discharge(1, LIMIT);
    CHECK_EQUAL(getpid(), hami_region_slot()->pid);
    hami_region_release();
    CHECK_EQUAL(0, hami_region()->proc_num);
    CHECK_EQUAL(0, hami_region_used(1));
}

/* What children share: where they wait for each other, and how many pieces they have together. */
static struct {
    pthread_barrier_t barrier;
    atomic_int pieces;
} *shared;

static void claim_with_the_others(void)
{
    hami_region_forget();
    pthread_barrier_wait(&shared->barrier);
    hami_region_slot();
    pthread_barrier_wait(&shared->barrier);
    _exit(hami_region_slot()->pid == getpid() ? 0 : 1);
}

/* A slot belongs to the process that claims it, even before it has written its start time. */
static void who_come_at_once_have_a_slot_each(void)
{
    pid_t children[CLAIMANTS];
    pthread_barrierattr_t between_processes;

    pthread_barrierattr_init(&between_processes);
    pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &between_processes, CLAIMANTS);
    hami_region_attach(two_devices);
    for (int round = 0; round < 25; round++) {
        for (int index = 0; index < CLAIMANTS; index++) {
            children[index] = fork();
            if (children[index] == 0)
                claim_with_the_others();
        }
        for (int index = 0; index < CLAIMANTS; index++)
            CHECK_EQUAL(0, exit_status(children[index]));
        hami_region_sweep();
    }
}

static void contend(void)
{
    int held = 0;

    hami_region_attach(two_devices);
    hami_region_slot();
    for (int round = 0; round < 200; round++) {
        if (hami_region_charge(0, PIECE)) {
            held++;
            if (atomic_fetch_add(&shared->pieces, 1) >= LIMIT / PIECE)
                _exit(2);
        }
        if (held && round % 3 == 0) {
            atomic_fetch_sub(&shared->pieces, 1);
            hami_region_discharge(0, PIECE);
            held--;
        }
    }
    atomic_fetch_sub(&shared->pieces, held);
}

static void start_and_die_together(void)
{
    pid_t children[PROCESSES];
    double began = seconds_now();

    for (int index = 0; index < PROCESSES; index++) {
        children[index] = fork();
        if (children[index] == 0) {
            contend();
            if (index % 2)
                hami_region_release();
            else
                raise(SIGKILL);
            _exit(0);
        }
    }
    for (int index = 0; index < PROCESSES; index++)
        CHECK_EQUAL(index % 2 ? 0 : -1, exit_status(children[index]));
    CHECK(seconds_now() - began < 30);
    hami_region_attach(two_devices);
    hami_region_sweep();
    CHECK_EQUAL(0, hami_region_used(0));
    CHECK_EQUAL(0, hami_region()->proc_num);
}

/* Kill children at random instructions of attach, claim and release. The next process must attach at once. */
static void a_death_anywhere_holds_nobody_up(void)
{
    unsigned int seed = 7;

    for (int round = 0; round < 150; round++) {
        pid_t child = fork();
        double began;

        if (child == 0) {
            for (;;) {
                hami_region_attach(two_devices);
                hami_region_charge(0, PIECE);
                hami_region_release();
            }
        }
        nanosleep(&(struct timespec){0, 200000 + rand_r(&seed) % 1500000}, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        began = seconds_asleep();
        hami_region_attach(two_devices);
        CHECK(hami_region_slot() != NULL);
        CHECK(hami_region_charge(0, LIMIT));
        hami_region_release();
        CHECK(seconds_asleep() - began < 1);
    }
}

static void hold_lock_and_fork(void)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = sizeof(struct hami_region)};
    int file;

    hami_region_attach(two_devices);
    hami_region_slot();
    if (fork() == 0) {
        /* A child that outlives its parent and keeps the parent's mapping holds no lock of the parent. */
        hami_region_forget();
        nanosleep(&(struct timespec){1, 0}, NULL);
        _exit(0);
    }
    file = open(path, O_RDWR);
    CHECK_EQUAL(0, fcntl(file, F_SETLK, &range));
    close(file);
    hami_region_release();
}

static void a_child_claims_its_own_slot(void)
{
    struct hami_slot *parents;
    pid_t child;

    hami_region_attach(two_devices);
    parents = hami_region_slot();
    hami_region_charge(0, PIECE);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        CHECK(hami_region_slot() != parents);
        CHECK(hami_region_charge(0, PIECE));
        CHECK_EQUAL(2 * PIECE, hami_region_used(0));
        hami_region_discharge(0, PIECE);
        hami_region_release();
        _exit(check_failed ? 1 : 0);
    }
    CHECK_EQUAL(0, exit_status(child));
    CHECK_EQUAL(PIECE, hami_region_used(0));
    hami_region_release();
}

static void a_recycled_pid_is_another_process(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    hami_region_slot();
    /* As a dead predecessor left it: the pid of a living process, here our parent, with another start time. */
    region->procs[1].pid = getppid();
    region->procs[1].status = HAMI_SLOT_RUNNING;
    region->procs[1].tag = HAMI_SLOT_TAG;
    region->procs[1].start_ticks = hami_start_ticks(getppid()) + 1;
    region->procs[1].used[0].total = LIMIT;
    region->proc_num = 2;
    CHECK(hami_region_charge(0, LIMIT));
    CHECK_EQUAL(0, region->procs[1].pid);
    hami_region_release();
}

/* A slot whose sweeper is between its first and its last write: it would empty the slot of a process that took it now. */
static void a_slot_that_is_being_emptied_is_left_alone(void)
{
    struct hami_region *region;
    int ready[2];
    pid_t sweeper;
    char byte;

    CHECK(pipe(ready) == 0);
    hami_region_attach(two_devices);
    region = hami_region();
    region->procs[0].pid = -1;
    region->proc_num = 1;
    sweeper = fork();
    if (sweeper == 0) {
        hami_region_forget();
        CHECK(hami_region_lock());
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK(hami_region_slot() == &region->procs[1]);
    CHECK_EQUAL(-1, region->procs[0].pid);
    kill(sweeper, SIGKILL);
    waitpid(sweeper, NULL, 0);
    hami_region_sweep();
    CHECK_EQUAL(0, region->procs[0].pid);
}

/* Open files until only this many more can be opened. */
static void leave_files(int count)
{
    struct rlimit limit;
    int next;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    CHECK_EQUAL(0, setrlimit(RLIMIT_NOFILE, &limit));
    next = dup(0);
    CHECK_EQUAL(0, close(next));
    limit.rlim_cur = (rlim_t)(next + count);
    CHECK_EQUAL(0, setrlimit(RLIMIT_NOFILE, &limit));
}

static void who_can_open_no_file_takes_nobody_for_dead(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    region->procs[0].pid = getppid();
    region->procs[0].status = HAMI_SLOT_RUNNING;
    region->procs[0].tag = HAMI_SLOT_TAG;
    region->procs[0].start_ticks = hami_start_ticks(getppid());
    region->procs[0].used[0].total = LIMIT;
    region->procs[1].pid = 0x7fffffff;
    region->procs[1].status = HAMI_SLOT_RUNNING;
    region->proc_num = 2;
    leave_files(0);
    CHECK(hami_region_slot() == &region->procs[2]);
    leave_files(1); /* for the lock */
    CHECK(!hami_region_charge(0, 1));
    CHECK_EQUAL(0, region->procs[1].pid);
    CHECK_EQUAL(getppid(), region->procs[0].pid);
    leave_files(9);
    CHECK(hami_slot_is_alive(hami_region_slot()));
}

static void fill_table(struct hami_region *region)
{
    for (int index = 0; index < HAMI_SLOTS_MAX; index++) {
        region->procs[index].pid = getppid();
        region->procs[index].status = HAMI_SLOT_RUNNING;
    }
    region->proc_num = HAMI_SLOTS_MAX;
}

static void a_full_table_sweeps_the_dead(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    fill_table(region);
    region->procs[500].pid = 0x7fffffff;
    CHECK(hami_region_slot() == &region->procs[500]);
}

/* A process beyond the table's end is held to what the others leave, with a private slot. */
static void beyond_the_last_slot_the_limit_still_holds(void)
{
    struct hami_region *region;
    struct hami_slot *own;
    pid_t child;

    hami_region_attach(two_devices);
    region = hami_region();
    fill_table(region);
    region->procs[7].used[0].total = LIMIT / 2;
    CHECK(hami_region_charge(0, LIMIT / 2));
    CHECK(!hami_region_charge(0, 1));
    CHECK_EQUAL(LIMIT, hami_region_used(0));
    own = hami_region_slot_at(HAMI_SLOTS_MAX);
    CHECK(own == hami_region_slot() && own->pid == getpid());
    CHECK(hami_region_slot_at(HAMI_SLOTS_MAX + 1) == NULL);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        CHECK_EQUAL(LIMIT / 2, hami_region_used(0));
        _exit(check_failed ? 1 : 0);
    }
    CHECK_EQUAL(0, exit_status(child));
    hami_region_discharge(0, LIMIT / 2);
    hami_region_release();
    CHECK_EQUAL(LIMIT / 2, hami_region_used(0));
    CHECK_EQUAL(HAMI_SLOTS_MAX, region->proc_num);
}

static void contexts_and_modules_count_beside_data(void)
{
    hami_region_attach(two_devices);
    hami_region_state_overhead(0, &(struct hami_overhead){1, 1000, 500}, 0);
    CHECK(hami_region_charge(0, PIECE));
    hami_region_state_overhead(0, &(struct hami_overhead){1, 300, 500}, 0);
    CHECK_EQUAL(300 + 500 + PIECE, hami_region_used(0));
    CHECK_EQUAL(PIECE, hami_region_own_data(0));
    CHECK(!hami_region_charge(0, LIMIT - PIECE));
    hami_region_state_overhead(0, &(struct hami_overhead){0, 0, 0}, 0);
    CHECK(hami_region_charge(0, LIMIT - PIECE));
    hami_region_release();
}

/* No other process can use what is held for a context. The hold ends with what the context took. */
static void a_hold_binds_until_it_is_settled(void)
{
    uint64_t each;

    hami_region_attach(two_devices);
    CHECK(hami_region_hold(0, LIMIT / 2));
    CHECK_EQUAL(0, hami_region_own_data(0));
    CHECK(!hami_region_charge(0, LIMIT / 2 + 1));
    CHECK(!hami_region_hold(0, LIMIT / 2 + 1));
    hami_region_state_overhead(0, &(struct hami_overhead){2, 1000, 0}, LIMIT / 2);
    CHECK_EQUAL(1000, hami_region_used(0));
    CHECK(hami_region_least_context(0, &each) && each == 500);
    CHECK(!hami_region_least_context(1, &each));
    CHECK_EQUAL(LIMIT - 1000, hami_region_hold_rest(0, LIMIT));
    CHECK_EQUAL(0, hami_region_hold_rest(0, LIMIT));
    hami_region_drop_hold(0, LIMIT - 1000);
    CHECK_EQUAL(500, hami_region_hold_rest(0, 500));
}

/* When a process ends, the driver has its memory for a moment more: it counts until the process is gone. */
static void what_a_process_leaves_counts_until_it_is_gone(void)
{
    int ready[2];
    pid_t child;
    char byte;

    CHECK(pipe(ready) == 0);
    hami_region_attach(two_devices);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        CHECK(hami_region_charge(0, LIMIT));
        hami_region_release();
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    CHECK_EQUAL(HAMI_SLOT_FREE, hami_region()->procs[0].status);
    hami_region_release();
    CHECK(hami_region_slot() == &hami_region()->procs[1]);
    CHECK(!hami_region_charge(0, 1));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    hami_region_release();
    CHECK(hami_region_slot() == &hami_region()->procs[0]);
    CHECK(hami_region_charge(0, LIMIT));
}

static void *stay(void *unused)
{
    pause();
    return unused;
}

/* A process whose first thread has ended lives on in the others, with all its memory. */
static void a_process_lives_while_any_thread_does(void)
{
    pid_t child = fork();

    if (child == 0) {
        pthread_t thread;

        pthread_create(&thread, NULL, stay, NULL);
        pthread_exit(NULL);
    }
    while (!has_state(child, 'Z'))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CHECK(hami_start_ticks(child) != 0);
    kill(child, SIGKILL);
    while (hami_start_ticks(child) != 0)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    CHECK(has_state(child, 'Z'));
    waitpid(child, NULL, 0);
}

static void contexts_of_unknown_cost_are_made_alone(void)
{
    int ready[2];
    pid_t child;
    char byte;
    double began;

    CHECK(pipe(ready) == 0);
    hami_region_attach(two_devices);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        CHECK(hami_region_lock_contexts());
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    began = seconds_now();
    if (fork() == 0) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        kill(child, SIGKILL);
        _exit(0);
    }
    CHECK(hami_region_lock_contexts());
    CHECK(seconds_now() - began >= 0.02);
    hami_region_unlock_contexts();
    CHECK(hami_region_lock());
    hami_region_unlock();
}

static void three_devices(struct hami_inventory *inventory)
{
    inventory->count = 3;
    strcpy(inventory->uuids[0], "GPU-c");
    strcpy(inventory->uuids[1], "GPU-b");
    strcpy(inventory->uuids[2], "GPU-a");
}

/* Processes identify a device by its index, so indices change only when no other process is there. */
static void known_devices_keep_their_places(void)
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

static void write_file(const void *bytes, size_t size, off_t file_size)
{
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    CHECK(ftruncate(file, file_size) == 0);
    CHECK(pwrite(file, bytes, size, 0) == (ssize_t)size);
    close(file);
}

static void half_written_files_begin_anew(void)
{
    static const char noise[300] = "not a region at all";

    write_file(noise, sizeof(noise), 300);
    fresh_file();
}

static void an_old_file_without_owners_begins_anew(void)
{
    const int32_t header[] = {HAMI_REGION_MAGIC, 1, 1};

    write_file(header, sizeof(header), 2008985);
    fresh_file();
}

/* The layout of HAMi 2.8.1 with a live owner in its first slot. */
static void an_old_file_in_use_is_left_alone(void)
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

static void an_unusable_path_still_limits(void)
{
    unlink(path);
    mkdir(path, 0700);
    hami_region_attach(two_devices);
    CHECK(hami_region_charge(0, LIMIT));
    CHECK(!hami_region_charge(0, 1));
    rmdir(path);
}

int main(void)
{
    snprintf(path, sizeof(path), "/tmp/hami-region-test-%d.cache", (int)getpid());
    setenv("CUDA_DEVICE_MEMORY_SHARED_CACHE", path, 1);
    setenv("CUDA_DEVICE_MEMORY_LIMIT", "1m", 1);
    setenv("LIBCUDA_LOG_LEVEL", "0", 1);
    umask(077);
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in_child(fresh_file);
    in_child(the_limit_is_exact);
    in_child(who_come_at_once_have_a_slot_each);
    in_child(start_and_die_together);
    in_child(a_death_anywhere_holds_nobody_up);
    in_child(hold_lock_and_fork);
    in_child(a_child_claims_its_own_slot);
    in_child(a_recycled_pid_is_another_process);
    in_child(a_slot_that_is_being_emptied_is_left_alone);
    in_child(who_can_open_no_file_takes_nobody_for_dead);
    in_child(a_full_table_sweeps_the_dead);
    in_child(beyond_the_last_slot_the_limit_still_holds);
    in_child(contexts_and_modules_count_beside_data);
    in_child(a_hold_binds_until_it_is_settled);
    in_child(what_a_process_leaves_counts_until_it_is_gone);
    in_child(a_process_lives_while_any_thread_does);
    in_child(contexts_of_unknown_cost_are_made_alone);
    in_child(known_devices_keep_their_places);
    in_child(half_written_files_begin_anew);
    in_child(an_old_file_without_owners_begins_anew);
    in_child(an_old_file_in_use_is_left_alone);
    in_child(an_unusable_path_still_limits);
    unlink(path);
    return check_failures();
}
