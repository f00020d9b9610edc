/*
 * The locks that the fake driver's processes share, while holders and waiters are killed.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "hardware/shared_file.h"

enum { ROUNDS = 10, PROCESSES = 16, THREADS = 4, LONGEST_WAIT_SECONDS = 5 };

/* What the lock guards: the two numbers are equal unless a holder died. */
struct guarded {
    struct shared_lock lock;
    uint64_t first, second;
};

static char folder[] = "/tmp/fake-lock-XXXXXX";
static struct shared_file file;
static _Atomic bool *is_over;

static struct guarded *open_guarded(void)
{
    if (!shared_file_open(&file, folder, "guarded", sizeof(struct guarded), NULL))
        _exit(1);
    return file.memory;
}

/* Returns whether what the lock guards is complete, or its last holder is known to have died. Leaves it complete. */
static bool take_and_give(struct guarded *guarded)
{
    bool is_left_by_the_dead = shared_lock_take(&file, &guarded->lock);
    bool is_as_told = is_left_by_the_dead || guarded->first == guarded->second;

    guarded->second = ++guarded->first;
    shared_lock_give(&guarded->lock);
    return is_as_told;
}

static void *contend(void *guarded)
{
    while (take_and_give(guarded))
        continue;
    _exit(1);
}

static pid_t start_contender(void)
{
    pid_t child = fork();
    struct guarded *guarded;
    pthread_t thread;

    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    guarded = open_guarded();
    for (int index = 0; index < THREADS; index++)
        pthread_create(&thread, NULL, contend, guarded);
    for (;;)
        pause();
}

/* The last process to take the lock finds no one left who would wake it. */
static pid_t start_bystander(void)
{
    pid_t child = fork();
    struct guarded *guarded;

    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    guarded = open_guarded();
    while (!atomic_load(is_over))
        if (!take_and_give(guarded))
            _exit(1);
    _exit(0);
}

static int status_within(pid_t child, int seconds)
{
    int status = -1;

    for (int waited_ms = 0; waited_ms < seconds * 1000; waited_ms++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return -1;
}

static void test_lock_of_a_dead_process_is_taken(void)
{
    unsigned int seed = 1;

    for (int round = 0; round < ROUNDS; round++) {
        pid_t contenders[PROCESSES], bystander;
        int status;

        atomic_store(is_over, false);
        for (int index = 0; index < PROCESSES; index++)
            contenders[index] = start_contender();
        bystander = start_bystander();
        for (int index = 0; index < PROCESSES; index++) {
            nanosleep(&(struct timespec){0, rand_r(&seed) % 2000000}, NULL);
            kill(contenders[index], SIGKILL);
        }
        for (int index = 0; index < PROCESSES; index++)
            CHECK(waitpid(contenders[index], &status, 0) == contenders[index] && WIFSIGNALED(status));
        atomic_store(is_over, true);
        CHECK_EQUAL(0, status_within(bystander, LONGEST_WAIT_SECONDS));
    }
}

static void test_next_holder_is_told_of_the_death(void)
{
    struct guarded *guarded = open_guarded();
    pid_t child = fork();

    if (child == 0) {
        shared_file_disown(&file);
        shared_lock_take(&file, &guarded->lock);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    CHECK(shared_lock_take(&file, &guarded->lock));
    shared_lock_give(&guarded->lock);
    CHECK(!shared_lock_take(&file, &guarded->lock));
    shared_lock_give(&guarded->lock);
}

int main(void)
{
    char path[64];

    is_over = mmap(NULL, sizeof(*is_over), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!mkdtemp(folder) || is_over == MAP_FAILED)
        return 1;
    test_lock_of_a_dead_process_is_taken();
    test_next_holder_is_told_of_the_death();
    snprintf(path, sizeof(path), "%s/guarded", folder);
    unlink(path);
    rmdir(folder);
    return check_failures();
}
