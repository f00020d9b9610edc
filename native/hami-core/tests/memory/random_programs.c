/*
 * Random programs under libvgpu.so, beside the fake driver's account of each device.
 *
 * Usage: random_programs SEED SECONDS. Runs programs with the seeds from SEED on until SECONDS have passed, and at least one; so
 * random_programs SEED 0 runs one alone. A program is up to four processes of up to six threads that allocate, free, share, load,
 * launch, fork and are killed at random (steps.h). Three things hold: what is charged is what the driver has, whenever all pause and
 * when they have ended; a device never has more than the limit; and nothing is refused that fits (requests.h).
 * The environment is that of a container: the library preloaded, a fake node, a limit.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "requests.h"
#include "steps.h"

#define MIB ((size_t)1 << 20)

/* What the account and the driver may differ by: what is packed into one block. */
#define GRANULE (2 * MIB)

static struct stage *stage;

/* A worker */

static void pause_until(int worker, int phase)
{
    atomic_store(&stage->paused[worker], phase);
    while (atomic_load(&stage->go) < phase)
        nanosleep(&(struct timespec){0, 50000}, NULL);
}

static void *act(void *actor)
{
    steps_do(actor);
    return NULL;
}

static void act_together(struct actor *actors, int count)
{
    pthread_t threads[THREADS_MAX];

    for (int index = 1; index < count; index++)
        if (pthread_create(&threads[index], NULL, act, &actors[index]) != 0)
            fail("no thread");
    act(&actors[0]);
    for (int index = 1; index < count; index++)
        pthread_join(threads[index], NULL);
}

static void work(struct worker *worker)
{
    static struct actor actors[THREADS_MAX];
    struct actor numbers = {.state = worker->seed * WORKERS_MAX + (unsigned int)worker->number};
    bool has_room;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    worker->threads = chance(&numbers, 2) ? 1 : 1 + (int)chance(&numbers, THREADS_MAX);
    for (int index = 0; index < worker->threads; index++)
        actors[index] = (struct actor){
            .worker = worker, .number = worker->number * THREADS_MAX + index, .state = numbers.state + (unsigned int)index};
    if (cuInit(0) != CUDA_SUCCESS)
        fail("cuInit fails");
    has_room = steps_open(&actors[0]);
    for (int phase = 1; phase <= PHASES; phase++) {
        if (has_room) {
            act_together(actors, worker->threads);
            steps_settle(&actors[0]);
        }
        pause_until(worker->number, phase);
    }
    for (int index = 0; has_room && index < worker->threads; index++)
        steps_close(&actors[index]);
    exit(0);
}

/* One program */

static void compare(unsigned int seed, const char *when)
{
    for (int ordinal = 0; ordinal < DEVICES; ordinal++) {
        struct verdict verdict = judge_ask(ordinal);
        uint64_t apart = verdict.accounted > verdict.truth ? verdict.accounted - verdict.truth : verdict.truth - verdict.accounted;

        if (apart > GRANULE)
            fail("program %u, %s: device %d has %.1f MiB, accounted for are %.1f", seed, when, ordinal, (double)verdict.truth / MIB,
                 (double)verdict.accounted / MIB);
        if (verdict.peak > verdict.limit)
            fail("program %u, %s: device %d had %.1f MiB, the limit is %.1f", seed, when, ordinal, (double)verdict.peak / MIB,
                 (double)verdict.limit / MIB);
    }
}

static void wait_for(unsigned int seed, pid_t *workers, int phase)
{
    double began = seconds_now();

    for (int worker = 0; worker < WORKERS_MAX; worker++) {
        while (workers[worker] && atomic_load(&stage->paused[worker]) < phase) {
            int status;

            if (waitpid(workers[worker], &status, WNOHANG) == workers[worker])
                fail("program %u: worker %d ends with %#x in phase %d", seed, worker, (unsigned int)status, phase);
            if (seconds_now() - began > 60)
                fail("program %u: worker %d hangs in phase %d", seed, worker, phase);
            nanosleep(&(struct timespec){0, 50000}, NULL);
        }
    }
}

static void end_one(unsigned int seed, pid_t *workers, int worker)
{
    int status;

    requests_begin_kill();
    kill(workers[worker], SIGKILL);
    if (waitpid(workers[worker], &status, 0) != workers[worker] || !WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail("program %u: a worker ends with %#x before it is killed", seed, (unsigned int)status);
    requests_end_kill(worker * THREADS_MAX, (worker + 1) * THREADS_MAX);
    workers[worker] = 0;
}

/* Worker 0 may have memory that others have opened, so it is not killed. */
static void run_program(unsigned int seed)
{
    struct actor numbers = {.state = seed};
    pid_t workers[WORKERS_MAX] = {0};
    int count = 1 + (int)chance(&numbers, WORKERS_MAX), victim;
    bool has_pools = chance(&numbers, 2);
    uint64_t limit = stage->limit;

    memset(stage, 0, sizeof(*stage));
    stage->limit = limit;
    requests_clear();
    victim = count > 1 && chance(&numbers, 2) ? count - 1 : -1;
    for (int number = 0; number < count; number++) {
        workers[number] = fork();
        if (workers[number] == 0)
            work(&(struct worker){.stage = stage,
                                  .seed = seed,
                                  .number = number,
                                  .count = count,
                                  .is_victim = number == victim,
                                  .has_pools = has_pools});
    }
    for (int phase = 1; phase <= PHASES; phase++) {
        if (victim >= 0 && phase == 2) {
            nanosleep(&(struct timespec){0, 1000 * (long)chance(&numbers, 1u << chance(&numbers, 13))}, NULL);
            end_one(seed, workers, victim);
        }
        wait_for(seed, workers, phase);
        compare(seed, phase == 1 ? "first pause" : phase == 2 ? "second pause" : "third pause");
        atomic_store(&stage->go, phase);
    }
    for (int worker = 0; worker < WORKERS_MAX; worker++) {
        int status;

        if (workers[worker] && (waitpid(workers[worker], &status, 0) < 0 || status))
            fail("program %u: worker %d ends with %#x", seed, worker, (unsigned int)status);
    }
    compare(seed, "its end");
    for (int ordinal = 0; ordinal < DEVICES; ordinal++)
        if (judge_ask(ordinal).accounted || judge_ask(ordinal).live_slots)
            fail("program %u: its end leaves something accounted", seed);
}

int main(int count, char **arguments)
{
    unsigned int seed, programs = 0;
    double end;

    if (count != 3)
        fail("usage: random_programs SEED SECONDS");
    seed = (unsigned int)strtoul(arguments[1], NULL, 10);
    end = seconds_now() + strtod(arguments[2], NULL);
    stage = mmap(NULL, sizeof(*stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    requests_prepare();
    judge_start();
    stage->limit = judge_ask(0).limit;
    do
        run_program(seed + programs++);
    while (seconds_now() < end);
    judge_end();
    printf("%u programs\n", programs);
    return 0;
}
