/*
 * The slots of processes, and the locks: simultaneous starts, deaths at any instruction, forks, full tables.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "../patience.h"
#include "liveness.h"
#include "region_test.h"

enum { THOUSAND = 1000, CLAIMANTS = 8 };

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

/* Where children wait for each other. */
static pthread_barrier_t *barrier;

static void claim_with_the_others(void)
{
    hami_region_forget();
    pthread_barrier_wait(barrier);
    hami_region_slot();
    pthread_barrier_wait(barrier);
    _exit(hami_region_slot()->pid == getpid() ? 0 : 1);
}

/* A slot belongs to the process that claims it, even before it has written its start time. */
static void each_of_many_claimants_gets_a_slot(void)
{
    pid_t children[CLAIMANTS];
    pthread_barrierattr_t between_processes;

    pthread_barrierattr_init(&between_processes);
    pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &between_processes, CLAIMANTS);
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

static void charge_with_the_others(int results)
{
    char result;

    hami_region_forget();
    pthread_barrier_wait(barrier);
    result = hami_region_charge(0, PIECE) ? 'y' : 'n';
    CHECK(write(results, &result, 1) == 1);
    pthread_barrier_wait(barrier);
    _exit(check_failed ? 1 : 0);
}

static int count_results(int results, int number)
{
    int charged = 0;
    char result;

    while (number--) {
        CHECK(read(results, &result, 1) == 1);
        charged += result == 'y';
    }
    return charged;
}

/* The whole limit can be charged and not a byte more, and each process has a slot while it lives. */
static void thousand_processes_share_a_limit_exactly(void)
{
    static pid_t children[THOUSAND];
    pthread_barrierattr_t between_processes;
    int results[2];

    pthread_barrierattr_init(&between_processes);
    pthread_barrierattr_setpshared(&between_processes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(barrier, &between_processes, THOUSAND + 1);
    hami_region_attach(two_devices);
    CHECK(pipe(results) == 0);
    for (int index = 0; index < THOUSAND; index++)
        if ((children[index] = fork()) == 0)
            charge_with_the_others(results[1]);
    pthread_barrier_wait(barrier);
    CHECK_EQUAL(LIMIT / PIECE, count_results(results[0], THOUSAND));
    CHECK_EQUAL(LIMIT, hami_region_used(0));
    CHECK_EQUAL(THOUSAND, hami_region()->proc_num);
    pthread_barrier_wait(barrier);
    for (int index = 0; index < THOUSAND; index++)
        CHECK_EQUAL(0, exit_status(children[index]));
    CHECK(hami_region_charge(0, LIMIT));
}

/* Kill children at random instructions of attach, claim and release. The next process must attach at once. */
static void killed_process_blocks_no_other(void)
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

static void child_holds_no_lock_of_its_parent(void)
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

static void child_claims_another_slot(void)
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

static void recycled_pid_is_another_process(void)
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
static void slot_that_is_being_emptied_is_not_taken(void)
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

static void process_without_file_descriptors_frees_no_live_slot(void)
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
    leave_files(1); /* for the slot's lock */
    CHECK(hami_region_slot() == &region->procs[2]);
    leave_files(1); /* for the lock */
    CHECK(!hami_region_charge(0, 1));
    CHECK_EQUAL(0, region->procs[1].pid);
    CHECK_EQUAL(getppid(), region->procs[0].pid);
    leave_files(9);
    CHECK(hami_slot_is_alive(region, 2));
}

static void full_table_frees_slots_of_dead_processes(void)
{
    struct hami_region *region;

    hami_region_attach(two_devices);
    region = hami_region();
    fill_table(region);
    region->procs[500].pid = 0x7fffffff;
    CHECK(hami_region_slot() == &region->procs[500]);
}

static void *stay(void *unused)
{
    pause();
    return unused;
}

/* A process whose first thread has ended lives on in the others, with all its memory. */
static void process_is_alive_while_any_thread_is(void)
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

/* Start a process that has locked something and never gives it back. */
static pid_t start_holder(void (*lock)(void))
{
    int ready[2];
    char byte;
    pid_t child;

    CHECK(pipe(ready) == 0);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        lock();
        CHECK(write(ready[1], "x", 1) == 1);
        pause();
    }
    CHECK(read(ready[0], &byte, 1) == 1);
    return child;
}

static void kill_soon(pid_t process)
{
    if (fork() == 0) {
        nanosleep(&(struct timespec){0, 20000000}, NULL);
        kill(process, SIGKILL);
        _exit(0);
    }
}

static void lock_contexts_of_first_device(void)
{
    CHECK(hami_region_lock_contexts(0));
}

static void lock_as_hami_core(void)
{
    int file = open(path, O_RDWR);
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000000, .l_len = 1};

    CHECK(fcntl(file, F_SETLK, &range) == 0);
}

static void context_lock_of_a_killed_process_is_released(void)
{
    double began;

    hami_region_attach(two_devices);
    began = seconds_now();
    kill_soon(start_holder(lock_contexts_of_first_device));
    CHECK(hami_region_lock_contexts(1));
    hami_region_unlock_contexts(1);
    CHECK(hami_region_lock_contexts(0));
    CHECK(seconds_now() - began >= 0.02);
    hami_region_unlock_contexts(0);
    CHECK(hami_region_lock());
    hami_region_unlock();
}

static void context_of_any_device_waits_for_hami_core(void)
{
    double began;

    hami_region_attach(two_devices);
    began = seconds_now();
    kill_soon(start_holder(lock_as_hami_core));
    CHECK(hami_region_lock_contexts(1));
    CHECK(seconds_now() - began >= 0.02);
    hami_region_unlock_contexts(1);
}

static void contexts_of_two_devices_do_not_wait_for_each_other(void)
{
    pid_t holder;

    hami_region_attach(two_devices);
    holder = start_holder(lock_contexts_of_first_device);
    CHECK(hami_region_lock_contexts(1));
    hami_region_unlock_contexts(1);
    kill(holder, SIGSTOP);
    CHECK(!hami_region_lock_contexts(0));
    kill(holder, SIGKILL);
}

int main(void)
{
    begin_region_test();
    barrier = mmap(NULL, sizeof(*barrier), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in_child(each_of_many_claimants_gets_a_slot);
    in_child(thousand_processes_share_a_limit_exactly);
    in_child(killed_process_blocks_no_other);
    in_child(child_holds_no_lock_of_its_parent);
    in_child(child_claims_another_slot);
    in_child(recycled_pid_is_another_process);
    in_child(slot_that_is_being_emptied_is_not_taken);
    in_child(process_without_file_descriptors_frees_no_live_slot);
    in_child(full_table_frees_slots_of_dead_processes);
    in_child(process_is_alive_while_any_thread_is);
    in_child(context_lock_of_a_killed_process_is_released);
    in_child(context_of_any_device_waits_for_hami_core);
    in_child(contexts_of_two_devices_do_not_wait_for_each_other);
    return end_region_test();
}
