/*
 * The file `state`: which processes are on the node, and the lock.
 */
#include "hardware/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hardware/shared_file.h"

enum { MAGIC = 0x46414b4c };

struct hw_state *hw_state;
static struct shared_file file;
static bool is_mps_client;
static struct hw_process *self;

void hw_lock(void)
{
    if (shared_lock_take(&file, &hw_state->lock))
        hw_memory_recount();
}

void hw_unlock(void)
{
    shared_lock_give(&hw_state->lock);
}

/* A process claims the position of its entry in the file, so its end is seen from every pid namespace. */
bool hw_is_held(int position)
{
    return shared_file_is_claimed(&file, position);
}

int hw_open_holding(int position)
{
    return shared_file_hold(&file, position);
}

bool hw_is_state(int descriptor)
{
    return shared_file_is(&file, descriptor);
}

void hw_reap_dead(void)
{
    for (int position = 0; position < hw_state->processes_end; position++) {
        struct hw_process *process = &hw_state->processes[position];

        if (!process->pid || process == self || hw_is_held(position))
            continue;
        hw_blocks_forget(position);
        hw_memory_forget(position);
        /* The pid last: this process may be killed here, and what has a pid is reaped again. */
        memset(process->device, 0, sizeof(process->device));
        atomic_signal_fence(memory_order_seq_cst);
        memset(process, 0, sizeof(*process));
    }
    hw_blocks_collect();
}

void hw_become_mps_client(void)
{
    is_mps_client = true;
}

static struct hw_process *claim_process(void)
{
    for (int pass = 0; pass < 2; pass++) {
        for (int position = 0; position < HW_PROCESSES_MAX; position++) {
            struct hw_process *process = &hw_state->processes[position];

            if (process->pid || !shared_file_claim(&file, position))
                continue;
            memset(process, 0, sizeof(*process));
            process->pid = getpid();
            process->is_mps_client = is_mps_client;
            process->serial = ++hw_state->serials;
            hw_find_groups(&process->groups);
            if (position >= hw_state->processes_end)
                hw_state->processes_end = position + 1;
            return process;
        }
        hw_reap_dead();
    }
    return NULL;
}

/* A process appears on the node when it first takes something, so one that only looks leaves no trace. */
struct hw_process *hw_this_process(void)
{
    if (!self)
        self = claim_process();
    return self;
}

struct hw_process *hw_known_process(void)
{
    return self;
}

int hw_position(const struct hw_process *process)
{
    return (int)(process - hw_state->processes);
}

uint64_t hw_self(void)
{
    return self ? self->serial : 0;
}

static void forget_parent(void)
{
    self = NULL;
    shared_file_disown(&file);
}

static void initialise(void *memory)
{
    struct hw_state *fresh = memory;

    fresh->magic = MAGIC;
    for (int index = 0; index < HW_INSTANCES_MAX; index++)
        fresh->instances[index].device.parent = -1;
}

bool hw_state_open(const char *folder)
{
    if (!shared_file_open(&file, folder, "state", sizeof(*hw_state), initialise)) {
        fprintf(stderr, "fake driver: cannot open the state of %s: %s\n", folder ? folder : "this process", strerror(errno));
        return false;
    }
    hw_state = file.memory;
    if (hw_state->magic != MAGIC) {
        fprintf(stderr, "fake driver: the state of %s is not one of this driver's\n", folder ? folder : "this process");
        hw_state = NULL;
        return false;
    }
    pthread_atfork(NULL, NULL, forget_parent);
    return true;
}
