#include "hardware/faults.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "driver/conditions.h"
#include "hardware/state.h"

#define POLL_NS 2000000

/* Return the condition that applies to a call: of any call, or of this one. */
static const struct condition *applying(const char *subject, const char *name, int value, const char *call)
{
    const struct condition *found = conditions_find(subject, name, NULL);

    while (found && found->value[value][0] && strcmp(found->value[value], call) != 0)
        found = conditions_find(subject, name, found + 1);
    return found;
}

static void wait_for_end_of_hang(const char *subject, const char *call)
{
    while (applying(subject, "hang", 0, call))
        nanosleep(&(struct timespec){0, POLL_NS}, NULL);
}

static struct fault fault_of(const char *subject, const char *call)
{
    const struct condition *error;

    if (!conditions_version())
        return (struct fault){FAULT_NONE, 0};
    wait_for_end_of_hang(subject, call);
    error = applying(subject, "error", 1, call);
    return error ? (struct fault){FAULT_ERROR, atoi(error->value[0])} : (struct fault){FAULT_NONE, 0};
}

struct fault fault_of_nvml(const char *call)
{
    return fault_of("nvml", call);
}

static const char *gpu_of(int device)
{
    return hw_device(hw_device(device)->parent >= 0 ? hw_device(device)->parent : device)->uuid;
}

/* A loss at a call has a number, and has happened when the state has that number. */
static uint64_t *happened_loss(int device)
{
    return &hw_state->losses[hw_device(device)->parent >= 0 ? hw_device(device)->parent : device];
}

bool fault_is_lost(int device)
{
    const struct condition *loss;

    if (!conditions_version())
        return false;
    if (!hw_exists(device))
        return true;
    if (conditions_find(gpu_of(device), "lost", NULL))
        return true;
    loss = conditions_find(gpu_of(device), "lost-at", NULL);
    return loss && __atomic_load_n(happened_loss(device), __ATOMIC_ACQUIRE) == strtoull(loss->value[1], NULL, 10);
}

struct fault fault_of_device(int device, const char *call)
{
    struct fault fault = fault_of(gpu_of(device), call);
    const struct condition *loss = conditions_find(gpu_of(device), "lost-at", NULL);

    if (loss && strcmp(loss->value[0], call) == 0)
        __atomic_store_n(happened_loss(device), strtoull(loss->value[1], NULL, 10), __ATOMIC_RELEASE);
    return fault_is_lost(device) ? (struct fault){FAULT_LOST, 0} : fault;
}
