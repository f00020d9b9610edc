#include "virtual_clock.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "hardware/shared_file.h"

enum { PROCESSES_MAX = 1024, THREADS_MAX = 4096, NOBODY = -1 };

/* Later than any machine's clock, so a deadline of this clock that reaches the kernel by mistake is in the future. */
#define START_NS 100000000000000000u
#define RUNNER_POLL_NS 10000000
/* After this many looks at the same moment, half a minute, a sleeper prints why time stands still. */
enum { LOOKS_BEFORE_COMPLAINT = 3000 };
/* Ranks order the first runs. All later places in the queue come after them. */
#define FIRST_TICKET ((uint64_t)1 << 32)

enum state { FREE, RUNNING, SLEEPING, AWAITING };

struct thread {
    _Atomic uint32_t state; /* also the futex that the thread waits on */
    int process;
    pid_t number; /* the kernel's thread id in its process's namespace */
    int awaited;
    uint64_t wake_ns;
    uint64_t ticket;
};

struct clock {
    struct shared_lock lock;
    _Atomic uint64_t now_ns;
    uint64_t tickets;
    bool is_started;
    int threads_used; /* no thread at or above this was ever used */
    bool is_process[PROCESSES_MAX];
    struct thread threads[THREADS_MAX];
};

static struct shared_file file;
static struct clock *shared;
static int process = NOBODY;
static int expected_processes, initial_rank;
static _Thread_local int self = NOBODY;

static void initialise(void *memory)
{
    struct clock *fresh = memory;

    fresh->now_ns = START_NS;
    fresh->tickets = FIRST_TICKET;
}

static void lock(void)
{
    shared_lock_take(&file, &shared->lock);
}

static void unlock(void)
{
    shared_lock_give(&shared->lock);
}

static void set_state(int thread, enum state state)
{
    atomic_store_explicit(&shared->threads[thread].state, state, memory_order_release);
}

static enum state state_of(int thread)
{
    return (enum state)atomic_load_explicit(&shared->threads[thread].state, memory_order_acquire);
}

/* The functions from here to the public ones need the lock held. */

static void queue(int thread, uint64_t wake_ns)
{
    uint64_t now = shared->now_ns;

    shared->threads[thread].wake_ns = wake_ns > now ? wake_ns : now;
    shared->threads[thread].ticket = shared->tickets++;
    set_state(thread, SLEEPING);
}

static bool is_before(int first, int second)
{
    const struct thread *one = &shared->threads[first], *other = &shared->threads[second];

    return one->wake_ns != other->wake_ns ? one->wake_ns < other->wake_ns : one->ticket < other->ticket;
}

/* Return the sleeper that runs next; none while a thread runs. */
static int next_runner(void)
{
    int best = NOBODY;

    for (int thread = 0; thread < shared->threads_used; thread++) {
        enum state state = state_of(thread);

        if (state == RUNNING)
            return NOBODY;
        if (state == SLEEPING && (best == NOBODY || is_before(thread, best)))
            best = thread;
    }
    return best;
}

/* Advance the clock to the next wake time if all sleep. */
static void hand_over(void)
{
    int next = shared->is_started ? next_runner() : NOBODY;

    if (next == NOBODY)
        return;
    if (shared->threads[next].wake_ns > shared->now_ns)
        shared->now_ns = shared->threads[next].wake_ns;
    set_state(next, RUNNING);
    if (next != self)
        syscall(SYS_futex, &shared->threads[next].state, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void free_thread(int thread)
{
    set_state(thread, FREE);
    for (int other = 0; other < shared->threads_used; other++)
        if (state_of(other) == AWAITING && shared->threads[other].awaited == thread)
            queue(other, 0);
}

static void free_process(int index)
{
    for (int thread = 0; thread < shared->threads_used; thread++)
        if (state_of(thread) != FREE && shared->threads[thread].process == index)
            set_state(thread, FREE);
    shared->is_process[index] = false;
}

static void bury(int index)
{
    if (index != process && !shared_file_is_claimed(&file, index))
        free_process(index);
}

static void bury_dead_runner(void)
{
    for (int thread = 0; thread < shared->threads_used; thread++)
        if (state_of(thread) == RUNNING)
            bury(shared->threads[thread].process);
}

/* Whether the kernel shows a thread of this process as waiting. */
static bool is_blocked(const struct thread *thread)
{
    char path[64], stat[256], state = '?';
    FILE *file;

    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", (int)thread->number);
    file = fopen(path, "re");
    if (!file)
        return false;
    if (fgets(stat, sizeof(stat), file) && strrchr(stat, ')'))
        sscanf(strrchr(stat, ')') + 1, " %c", &state);
    fclose(file);
    return state == 'S';
}

/*
 * Let the calling thread run beside the running ones if it is due, and all of those belong to this process and are blocked: they
 * may wait for it.
 */
static void run_beside_blocked(void)
{
    if (state_of(self) != SLEEPING || shared->threads[self].wake_ns > shared->now_ns)
        return;
    for (int thread = 0; thread < shared->threads_used; thread++)
        if (state_of(thread) == RUNNING && (shared->threads[thread].process != process || !is_blocked(&shared->threads[thread])))
            return;
    set_state(self, RUNNING);
}

static void claim_process(void)
{
    int living = 1;

    for (int index = 0; index < PROCESSES_MAX; index++)
        if (shared->is_process[index])
            bury(index);
    for (int index = 0; index < PROCESSES_MAX; index++) {
        if (shared->is_process[index])
            living++;
        else if (process == NOBODY && shared_file_claim(&file, index))
            process = index;
    }
    if (process != NOBODY)
        shared->is_process[process] = true;
    shared->is_started = shared->is_started || living >= expected_processes;
}

static int take_thread(void)
{
    int thread = 0;

    if (process == NOBODY)
        claim_process();
    while (thread < THREADS_MAX && state_of(thread) != FREE)
        thread++;
    if (thread == THREADS_MAX || process == NOBODY)
        return NOBODY;
    if (thread >= shared->threads_used)
        shared->threads_used = thread + 1;
    shared->threads[thread].process = process;
    queue(thread, 0);
    return thread;
}

static void complain(void)
{
    if (!shared->is_started)
        fprintf(stderr, "fake time: still waiting for %d processes to begin\n", expected_processes);
    for (int thread = 0; thread < shared->threads_used; thread++)
        if (state_of(thread) == RUNNING)
            fprintf(stderr, "fake time: thread %d holds the clock and does not sleep\n", (int)shared->threads[thread].number);
}

/* The caller does not hold the lock. */
static void wait_for_turn(void)
{
    const struct timespec poll = {0, RUNNER_POLL_NS};
    struct thread *thread = &shared->threads[self];
    uint64_t then = shared->now_ns;
    enum state state;
    int looks = 0;

    while ((state = state_of(self)) != RUNNING) {
        if (syscall(SYS_futex, &thread->state, FUTEX_WAIT, state, &poll, NULL, 0) == 0 || state_of(self) == RUNNING)
            continue;
        lock();
        bury_dead_runner();
        hand_over();
        if (shared->is_started)
            run_beside_blocked();
        looks = then == shared->now_ns ? looks + 1 : 0;
        then = shared->now_ns;
        if (looks == LOOKS_BEFORE_COMPLAINT)
            complain();
        unlock();
    }
}

static void begin(void)
{
    shared->threads[self].number = (pid_t)syscall(SYS_gettid);
    wait_for_turn();
}

/* For a forked child. */
static void disown(void)
{
    shared_file_disown(&file);
    process = NOBODY;
    self = NOBODY;
}

/* Public */

bool virtual_clock_open(const char *folder, int processes, int rank)
{
    if (!shared_file_open(&file, folder, "clock", sizeof(*shared), initialise))
        return false;
    expected_processes = processes;
    initial_rank = rank;
    shared = file.memory;
    return pthread_atfork(NULL, NULL, disown) == 0;
}

uint64_t virtual_clock_now(void)
{
    return atomic_load_explicit(&shared->now_ns, memory_order_relaxed);
}

bool virtual_clock_is_inside(void)
{
    return self != NOBODY;
}

void virtual_clock_enter(void)
{
    if (self != NOBODY)
        return;
    lock();
    self = take_thread();
    if (self != NOBODY && initial_rank >= 0)
        shared->threads[self].ticket = (uint64_t)initial_rank;
    initial_rank = NOBODY;
    hand_over();
    unlock();
    if (self != NOBODY)
        begin();
}

void virtual_clock_leave(void)
{
    if (self == NOBODY)
        return;
    virtual_clock_drop(self);
    self = NOBODY;
}

void virtual_clock_sleep_until(uint64_t at_ns)
{
    virtual_clock_enter();
    if (self == NOBODY)
        return;
    lock();
    queue(self, at_ns);
    hand_over();
    unlock();
    wait_for_turn();
}

int virtual_clock_reserve(void)
{
    int thread;

    lock();
    thread = take_thread();
    unlock();
    return thread;
}

void virtual_clock_adopt(int thread)
{
    self = thread;
    begin();
}

void virtual_clock_drop(int thread)
{
    lock();
    free_thread(thread);
    hand_over();
    unlock();
}

void virtual_clock_await(int thread)
{
    if (self == NOBODY)
        return;
    lock();
    shared->threads[self].awaited = thread;
    set_state(self, AWAITING);
    hand_over();
    unlock();
    wait_for_turn();
}

void virtual_clock_close(void)
{
    if (process == NOBODY)
        return;
    lock();
    free_process(process);
    self = NOBODY;
    hand_over();
    unlock();
    process = NOBODY;
}
