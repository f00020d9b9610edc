#include "candidates.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "lock_rank.h"

enum { CANDIDATES_MAX = 32, STRIKES_MAX = 2, STEADY_ENOUGH = 3, LOOKS_AT_ONCE = 16 };

/* The charges round up to blocks, and may be a block or two above what the driver has taken. */
#define SLACK ((int64_t)4 << 20)
#define LEAST_CHANGE ((uint64_t)8 << 20)

struct candidate {
    unsigned int pid;
    int strikes, steady; /* looks in which what it has beyond this process's charges had shrunk, and was the same */
    int64_t beyond;      /* what that is; INT64_MIN before the first look */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct candidate candidates[CANDIDATES_MAX];
static int candidates_device;
static _Atomic int count;

/* The last look, and how many there were. */
static uint64_t charged_before;
static time_t looked_at;
static int looks;

static const nvmlProcessInfo_v2_t *find(const struct hami_nvml_processes *listed, unsigned int pid)
{
    for (unsigned int index = 0; index < listed->count; index++)
        if (listed->list[index].pid == pid)
            return &listed->list[index];
    return NULL;
}

bool hami_candidates_are_any(void)
{
    return atomic_load_explicit(&count, memory_order_relaxed) > 0;
}

/* The mutex is held from here on. */

/* Keep the candidates for which `is_kept` is true. */
static void keep(bool (*is_kept)(struct candidate *candidate, const void *arguments), const void *arguments)
{
    int kept = 0;

    for (int index = 0; index < atomic_load(&count); index++)
        if (is_kept(&candidates[index], arguments))
            candidates[kept++] = candidates[index];
    atomic_store(&count, kept);
}

/* Return the pid of the last candidate. There are none then. */
static unsigned int take_last(void)
{
    if (atomic_load(&count) != 1)
        return 0;
    atomic_store(&count, 0);
    return candidates[0].pid;
}

/* Two lists of a device. */
struct lists {
    const struct hami_nvml_processes *before, *after;
};

static bool has_appeared(struct candidate *candidate, const void *arguments)
{
    const struct lists *lists = arguments;

    return find(lists->after, candidate->pid) && !find(lists->before, candidate->pid);
}

static void begin(int device, const struct lists *lists)
{
    int found = 0;

    for (unsigned int index = 0; index < lists->after->count; index++) {
        struct candidate candidate = {.pid = lists->after->list[index].pid, .beyond = INT64_MIN};

        if (!has_appeared(&candidate, lists))
            continue;
        if (found == CANDIDATES_MAX)
            return;
        candidates[found++] = candidate;
    }
    candidates_device = device;
    looks = 0;
    atomic_store(&count, found);
}

unsigned int hami_candidates_meet(int device, const struct hami_nvml_processes *before, const struct hami_nvml_processes *after)
{
    const struct lists lists = {before, after};
    unsigned int pid;

    hami_lock(&mutex, HAMI_RANK_CANDIDATES);
    if (atomic_load(&count))
        keep(has_appeared, &lists);
    else
        begin(device, &lists);
    pid = take_last();
    hami_unlock(&mutex, HAMI_RANK_CANDIDATES);
    return pid;
}

bool hami_candidates_are_due(int device, uint64_t charged_bytes)
{
    uint64_t change;
    bool is_due;

    hami_lock(&mutex, HAMI_RANK_CANDIDATES);
    change = charged_bytes > charged_before ? charged_bytes - charged_before : charged_before - charged_bytes;
    is_due = atomic_load(&count) && device == candidates_device && (!looks || change >= LEAST_CHANGE) &&
             (looks < LOOKS_AT_ONCE || looked_at != time(NULL));
    hami_unlock(&mutex, HAMI_RANK_CANDIDATES);
    return is_due;
}

/* A look at a device. */
struct look {
    const struct hami_nvml_processes *listed;
    int64_t charged;
};

/* Whether a process may still be this one. */
static bool is_possible(struct candidate *candidate, const void *arguments)
{
    const struct look *look = arguments;
    const nvmlProcessInfo_v2_t *process = find(look->listed, candidate->pid);
    int64_t beyond;

    if (!process)
        return false;
    if (process->usedGpuMemory > INT64_MAX)
        return true;
    beyond = (int64_t)process->usedGpuMemory - look->charged;
    if (candidate->beyond > INT64_MIN && beyond < candidate->beyond - SLACK)
        candidate->strikes++;
    else if (candidate->beyond > INT64_MIN && beyond < candidate->beyond + SLACK)
        candidate->steady++;
    candidate->beyond = beyond;
    return beyond >= -SLACK && candidate->strikes < STRIKES_MAX;
}

/* The one that was steady in more looks than any other. Two would have to change by the same bytes in the same looks by chance. */
static void keep_steadiest(void)
{
    int best = 0, second = 0;

    for (int index = 1; index < atomic_load(&count); index++) {
        if (candidates[index].steady > candidates[best].steady) {
            second = candidates[best].steady;
            best = index;
        } else if (candidates[index].steady > second) {
            second = candidates[index].steady;
        }
    }
    if (atomic_load(&count) < 2 || candidates[best].steady < second + STEADY_ENOUGH)
        return;
    candidates[0] = candidates[best];
    atomic_store(&count, 1);
}

unsigned int hami_candidates_look(int device, const struct hami_nvml_processes *listed, uint64_t charged_bytes)
{
    const struct look look = {listed, (int64_t)charged_bytes};
    unsigned int pid = 0;

    hami_lock(&mutex, HAMI_RANK_CANDIDATES);
    if (device == candidates_device) {
        keep(is_possible, &look);
        keep_steadiest();
        charged_before = charged_bytes;
        looked_at = time(NULL);
        looks++;
        pid = take_last();
    }
    hami_unlock(&mutex, HAMI_RANK_CANDIDATES);
    return pid;
}

void hami_candidates_restart(void)
{
    if (!hami_candidates_are_any())
        return;
    hami_lock(&mutex, HAMI_RANK_CANDIDATES);
    for (int index = 0; index < atomic_load(&count); index++)
        candidates[index].beyond = INT64_MIN;
    hami_unlock(&mutex, HAMI_RANK_CANDIDATES);
}

void hami_candidates_forget(void)
{
    pthread_mutex_init(&mutex, NULL);
    atomic_store(&count, 0);
}
