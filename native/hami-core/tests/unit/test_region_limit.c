/*
 * The limit of a device among the processes of a container.
 */
#include <signal.h>
#include <stdatomic.h>

#include "region_contexts.h"
#include "region_test.h"

enum { PROCESSES = 64 };

static void limit_is_exact(void)
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

/* How many pieces all children hold together. */
static atomic_int *pieces;

static void contend(void)
{
    int held = 0;

    hami_region_attach(two_devices);
    hami_region_slot();
    for (int round = 0; round < 200; round++) {
        if (hami_region_charge(0, PIECE)) {
            held++;
            if (atomic_fetch_add(pieces, 1) >= LIMIT / PIECE)
                _exit(2);
        }
        if (held && round % 3 == 0) {
            atomic_fetch_sub(pieces, 1);
            hami_region_discharge(0, PIECE);
            held--;
        }
    }
    atomic_fetch_sub(pieces, held);
}

static void limit_is_exact_among_64_processes_that_die(void)
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

/* A process beyond the table's end is held to what the others leave, with a private slot. */
static void limit_holds_for_a_process_without_slot(void)
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
    hami_region_store_overhead(0, &(struct hami_overhead){1, 1000, 500}, 0);
    CHECK(hami_region_charge(0, PIECE));
    hami_region_store_overhead(0, &(struct hami_overhead){1, 300, 500}, 0);
    CHECK_EQUAL(300 + 500 + PIECE, hami_region_used(0));
    CHECK_EQUAL(PIECE, hami_region_own_data(0));
    CHECK(!hami_region_charge(0, LIMIT - PIECE));
    hami_region_store_overhead(0, &(struct hami_overhead){0, 0, 0}, 0);
    CHECK(hami_region_charge(0, LIMIT - PIECE));
    hami_region_release();
}

/* No other process can use what is held for a context. The hold ends with what the context took. */
static void hold_counts_until_it_is_settled(void)
{
    uint64_t each;

    hami_region_attach(two_devices);
    CHECK(hami_region_hold(0, LIMIT / 2));
    CHECK_EQUAL(0, hami_region_own_data(0));
    CHECK(!hami_region_charge(0, LIMIT / 2 + 1));
    CHECK(!hami_region_hold(0, LIMIT / 2 + 1));
    hami_region_store_overhead(0, &(struct hami_overhead){2, 1000, 0}, LIMIT / 2);
    CHECK_EQUAL(1000, hami_region_used(0));
    CHECK(hami_region_dearest_context(0, &each) && each == 1000); /* as of a library that does not say what each takes */
    hami_region_expect_context(0, 500);
    CHECK(hami_region_dearest_context(0, &each) && each == 500);
    CHECK(!hami_region_dearest_context(1, &each));
    CHECK_EQUAL(LIMIT - 1000, hami_region_hold_rest(0, LIMIT));
    CHECK_EQUAL(0, hami_region_hold_rest(0, LIMIT));
    hami_region_drop_hold(0, LIMIT - 1000);
    CHECK_EQUAL(500, hami_region_hold_rest(0, 500));
}

/* When a process ends, the driver has its memory for a moment more: it counts until the process is gone. */
static void memory_of_a_released_slot_counts_until_its_process_is_gone(void)
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

static uint64_t peak(void)
{
    return hami_region()->procs[0].used[0].peak;
}

static void peak_is_the_most_that_processes_used_together(void)
{
    pid_t child;

    hami_region_attach(two_devices);
    CHECK_EQUAL(HAMI_REGION_RECORDS, hami_region()->sem.records);
    CHECK(hami_region_charge(0, 3 * PIECE));
    hami_region_record_use(0);
    child = fork();
    if (child == 0) {
        hami_region_forget();
        CHECK(hami_region_charge(0, 2 * PIECE));
        hami_region_record_use(0);
        hami_region_release();
        _exit(check_failed ? 1 : 0);
    }
    CHECK_EQUAL(0, exit_status(child));
    CHECK_EQUAL(5 * PIECE, peak());
    hami_region_sweep();
    hami_region_discharge(0, 2 * PIECE);
    hami_region_record_use(0);
    CHECK_EQUAL(PIECE, hami_region_used(0));
    CHECK_EQUAL(5 * PIECE, peak());
    CHECK_EQUAL(0, hami_region()->procs[0].used[1].peak);
}

static void peak_leaves_out_what_is_only_held(void)
{
    hami_region_attach(two_devices);
    CHECK(hami_region_hold(0, LIMIT / 2));
    CHECK(hami_region_charge(0, PIECE));
    hami_region_record_use(0);
    CHECK_EQUAL(PIECE, peak());
    hami_region_store_overhead(0, &(struct hami_overhead){1, LIMIT / 4, PIECE}, LIMIT / 2);
    hami_region_record_use(0);
    CHECK_EQUAL(LIMIT / 4 + 2 * PIECE, peak());
}

static void records_outlive_the_process_in_the_first_slot(void)
{
    hami_region_attach(two_devices);
    CHECK(hami_region_charge(0, PIECE));
    hami_region_record_use(0);
    hami_region_begin_wait(0, true);
    CHECK_EQUAL(1, hami_region_slot()->device_use[0].waiting);
    hami_region_end_wait(0, 7);
    hami_region_begin_wait(0, false);
    hami_region_end_wait(0, 5);
    hami_region_discharge(0, PIECE);
    hami_region_release();
    CHECK(hami_region_slot() == &hami_region()->procs[0]);
    CHECK_EQUAL(PIECE, peak());
    CHECK_EQUAL(0, hami_region_slot()->device_use[0].waiting);
    CHECK_EQUAL(1, hami_region()->procs[0].device_use[0].waited);
    CHECK_EQUAL(12, hami_region()->procs[0].device_use[0].waited_ns);
}

int main(void)
{
    begin_region_test();
    pieces = mmap(NULL, sizeof(*pieces), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    in_child(limit_is_exact);
    in_child(limit_is_exact_among_64_processes_that_die);
    in_child(limit_holds_for_a_process_without_slot);
    in_child(contexts_and_modules_count_beside_data);
    in_child(hold_counts_until_it_is_settled);
    in_child(memory_of_a_released_slot_counts_until_its_process_is_gone);
    in_child(peak_is_the_most_that_processes_used_together);
    in_child(peak_leaves_out_what_is_only_held);
    in_child(records_outlive_the_process_in_the_first_slot);
    return end_region_test();
}
