/*
 * Processes that are killed at any instruction: the limit holds at every moment, none waits for the dead, nothing is counted twice
 * or below zero, and everything is given back.
 *
 * Usage: crash_matrix SEED ROUNDS. In each round 64 processes of 8 threads start, allocate, free and query, and are killed at
 * random instructions. Meanwhile another process starts and ends repeatedly and is timed. The environment is as for
 * random_programs.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../patience.h"
#include "hami/cuda_abi.h"
#include "judge.h"

enum { PROCESSES = 64, THREADS = 8 };

#define MIB ((size_t)1 << 20)
#define LONGEST_WAIT_SECONDS 1.0

static CUcontext context;
static uint64_t limit_bytes;
static double *bystander_waited; /* seconds; from that process to its parent */
static double longest_wait;

static void take_and_give_plain(void)
{
    CUdeviceptr pointers[4] = {0};
    size_t available = 0, total = 0;

    for (int index = 0; index < 4; index++)
        if (cuMemAlloc_v2(&pointers[index], index % 2 ? 4096 : 3 * MIB) != CUDA_SUCCESS)
            pointers[index] = 0;
    if (cuMemGetInfo_v2(&available, &total) != CUDA_SUCCESS || available > total || total != limit_bytes)
        fail("%zu of %zu bytes are free, and the limit is %llu", available, total, (unsigned long long)limit_bytes);
    for (int index = 0; index < 4; index++)
        if (pointers[index])
            cuMemFree_v2(pointers[index]);
}

static void take_and_give_pooled(void)
{
    CUdeviceptr pointer;

    if (cuMemAllocAsync(&pointer, 5000, NULL) == CUDA_SUCCESS)
        cuMemFreeAsync(pointer, NULL);
    cuCtxSynchronize();
}

static void come_and_go(void)
{
    CUcontext passing;
    CUmodule module;

    if (cuModuleLoadData(&module, "image") == CUDA_SUCCESS)
        cuModuleUnload(module);
    if (cuCtxCreate_v2(&passing, 0, 0) == CUDA_SUCCESS)
        cuCtxDestroy_v2(passing);
    cuCtxSetCurrent(context);
}

static void *churn(void *thread)
{
    cuCtxSetCurrent(context);
    for (unsigned int round = (unsigned int)(uintptr_t)thread;; round++) {
        take_and_give_plain();
        if (round % 4 == 1)
            take_and_give_pooled();
        if (round % 8 == 2)
            come_and_go();
        nanosleep(&(struct timespec){0, 2000000}, NULL);
    }
    return NULL;
}

static void live(void)
{
    pthread_t threads[THREADS];

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cuInit(0) != CUDA_SUCCESS)
        fail("cuInit fails");
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
        pause();
    for (int index = 0; index < THREADS; index++)
        pthread_create(&threads[index], NULL, churn, (void *)(uintptr_t)index);
    for (;;)
        pause();
}

/* How long a process that is not killed waits for others while they die: at its start, for an allocation, and at its end. */
static void pass_by(void)
{
    double began = seconds_asleep();
    CUdeviceptr pointer;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cuInit(0) != CUDA_SUCCESS)
        fail("a bystander's cuInit fails");
    if (cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cuCtxSetCurrent(context) == CUDA_SUCCESS &&
        cuMemAlloc_v2(&pointer, MIB) == CUDA_SUCCESS)
        cuMemFree_v2(pointer);
    *bystander_waited = seconds_asleep() - began;
    exit(0);
}

/* Seconds of processor time: of all processes of the machine, and of children that were waited for. */
struct work {
    double all, children;
};

static struct work work_so_far(void)
{
    double user, nice, system, idle, waiting, interrupts, soft_interrupts, stolen;
    FILE *file = fopen("/proc/stat", "re");
    struct rusage used;

    if (!file || fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &waiting, &interrupts,
                        &soft_interrupts, &stolen) != 8)
        fail("/proc/stat cannot be read");
    fclose(file);
    getrusage(RUSAGE_CHILDREN, &used);
    return (struct work){(user + nice + system + interrupts + soft_interrupts + stolen) / (double)sysconf(_SC_CLK_TCK),
                         (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                             (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6};
}

/* Others that want the processor also delay a waiting process. Subtract their part from its wait. */
static void note_wait(struct work before)
{
    struct work now = work_so_far();
    double part = (now.children - before.children) / (now.all - before.all);
    double wait = *bystander_waited * (part < 1 ? part : 1);

    longest_wait = wait > longest_wait ? wait : longest_wait;
}

/* Nothing is left in the driver and in the account, and there was never more than the limit. */
static void check_account(unsigned int round)
{
    struct verdict verdict = judge_ask(0);

    if (verdict.peak > verdict.limit)
        fail("round %u: at some moment the device had %llu bytes, the limit is %llu", round, (unsigned long long)verdict.peak,
             (unsigned long long)verdict.limit);
    if (verdict.accounted || verdict.truth || verdict.live_slots)
        fail("round %u: %llu bytes stay accounted, %llu taken, in %d slots", round, (unsigned long long)verdict.accounted,
             (unsigned long long)verdict.truth, verdict.live_slots);
}

static void run_round(unsigned int round, unsigned int *seed)
{
    struct work before = work_so_far();
    pid_t children[PROCESSES], bystander;
    int status;

    for (int index = 0; index < PROCESSES; index++) {
        children[index] = fork();
        if (children[index] == 0)
            live();
    }
    bystander = fork();
    if (bystander == 0)
        pass_by();
    for (int index = 0; index < PROCESSES; index++) {
        nanosleep(&(struct timespec){0, rand_r(seed) % 1000000}, NULL);
        kill(children[index], SIGKILL);
    }
    for (int index = 0; index < PROCESSES; index++)
        if (waitpid(children[index], &status, 0) != children[index] || !WIFSIGNALED(status))
            fail("round %u: process %d ends with %#x before it is killed", round, index, (unsigned int)status);
    if (waitpid(bystander, &status, 0) != bystander || status)
        fail("round %u: the bystander ends with %#x", round, (unsigned int)status);
    note_wait(before);
}

int main(int count, char **arguments)
{
    unsigned int seed, rounds;

    if (count != 3)
        fail("usage: crash_matrix SEED ROUNDS");
    seed = (unsigned int)strtoul(arguments[1], NULL, 10);
    rounds = (unsigned int)strtoul(arguments[2], NULL, 10);
    bystander_waited = mmap(NULL, sizeof(*bystander_waited), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    judge_start();
    limit_bytes = judge_ask(0).limit;
    for (unsigned int round = 0; round < rounds; round++) {
        run_round(round, &seed);
        check_account(round);
    }
    judge_end();
    printf("%u rounds, the longest wait %.1f ms\n", rounds, longest_wait * 1e3);
    if (longest_wait > LONGEST_WAIT_SECONDS)
        fail("a bystander waited for %.3f s", longest_wait);
    return 0;
}
