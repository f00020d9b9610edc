#include "time/schedule.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/variables.h"
#include "hardware/hardware.h"
#include "hardware/shared_file.h"
#include "time/history.h"
#include "time/round_robin.h"

/* Slices: of half a minute at least. */
enum { SLICES_KEPT = 1 << 15, STRETCHES_AHEAD = 64 };

/* How often to check whether processes with work are alive. */
#define LIVENESS_NS 1000000u

_Static_assert((int)SCHEDULE_CONTEXTS_MAX <= (int)ROUND_ROBIN_CONTEXTS_MAX, "every context can have a slice");

/* A slice in which a context ran, on its own clock and the node's. */
struct slice {
    uint64_t from_ns, from_at, length_ns;
};

/* All but `device` belongs to the device's lock. A context stays with the device that used it first. */
struct context {
    _Atomic int device; /* plus 1; 0: never used */
    bool is_open;
    pid_t pid;
    uint64_t process;
    uint64_t reached_at, promised_at;
    uint64_t closed_ns;
    uint64_t slices_begun;
    struct schedule_client client;
    bool was_killed_at_work;
};

struct device {
    struct shared_lock lock;
    struct round_robin order;
    uint64_t looked_ns;
    int contexts_end; /* no context at or above this was ever used on the device */
};

struct schedule {
    _Atomic uint64_t processes;
    struct shared_lock births; /* for who uses a context first; taken after a device's lock */
    struct device devices[HW_DEVICES_MAX];
    struct context contexts[SCHEDULE_CONTEXTS_MAX];
    struct slice slices[SCHEDULE_CONTEXTS_MAX][SLICES_KEPT]; /* of each context, a ring */
    struct history contexts_past[SCHEDULE_CONTEXTS_MAX], devices_past[HW_DEVICES_MAX];
};

static struct shared_file file;
static struct schedule *schedule;
static struct round_robin_rule rule;
static bool is_concurrent;
static _Atomic bool is_mine[SCHEDULE_CONTEXTS_MAX];
static uint64_t this_process; /* guarded by `births` */
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void forget_parent(void)
{
    shared_file_disown(&file);
    for (int context = 0; context < SCHEDULE_CONTEXTS_MAX; context++)
        is_mine[context] = false;
    this_process = 0;
}

static uint64_t setting_us(const char *name, uint64_t otherwise)
{
    const char *setting = variable(name);

    return (setting ? strtoull(setting, NULL, 10) : otherwise) * 1000u;
}

static void open_schedule(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR"), *mps = variable("FAKE_DRIVER_MPS");

    rule = (struct round_robin_rule){setting_us("FAKE_DRIVER_QUANTUM_US", 2000), setting_us("FAKE_DRIVER_SWITCH_US", 100),
                                     HW_MULTIPROCESSORS};
    if (!rule.quantum_ns)
        rule.quantum_ns = 1;
    is_concurrent = mps && strcmp(mps, "1") == 0;
    if (!shared_file_open(&file, folder && folder[0] ? folder : NULL, "schedule", sizeof(*schedule), NULL)) {
        fprintf(stderr, "fake driver: cannot open the schedule of %s: %s\n", folder ? folder : "this process", strerror(errno));
        return;
    }
    schedule = file.memory;
    pthread_atfork(NULL, NULL, forget_parent);
}

bool schedule_open(void)
{
    pthread_once(&opened, open_schedule);
    return schedule != NULL;
}

/* From here to schedule_lock() the device's lock is held. */

static void note_slice(int index, uint64_t from_ns, uint64_t length_ns)
{
    struct context *context = &schedule->contexts[index];
    struct slice *last = &schedule->slices[index][(context->slices_begun + SLICES_KEPT - 1) % SLICES_KEPT];

    if (context->slices_begun && last->from_ns + last->length_ns == from_ns) {
        last->length_ns += length_ns;
    } else {
        schedule->slices[index][context->slices_begun % SLICES_KEPT] = (struct slice){from_ns, context->reached_at, length_ns};
        context->slices_begun++;
    }
}

static void run(int context, uint64_t from_ns, uint64_t to_ns)
{
    note_slice(context, from_ns, to_ns - from_ns);
    history_add(&schedule->contexts_past[context], from_ns, to_ns);
    schedule->contexts[context].reached_at += to_ns - from_ns;
}

static bool is_on(const struct context *context, int device)
{
    return context->device == device + 1;
}

static int device_of(int context)
{
    return schedule->contexts[context].device - 1;
}

static bool is_dead(int context)
{
    return schedule->contexts[context].is_open && !is_mine[context] && !shared_file_is_claimed(&file, context);
}

static void close_context(int context, uint64_t now)
{
    schedule->contexts[context].promised_at = schedule->contexts[context].reached_at;
    schedule->contexts[context].closed_ns = now;
    schedule->contexts[context].is_open = false;
}

static bool has_work(const struct context *context, int device)
{
    return is_on(context, device) && context->promised_at > context->reached_at;
}

/* Drop the work of dead processes: of clients of MPS, or of others. */
static void bury(int index, uint64_t now, bool are_clients)
{
    for (int number = 0; number < schedule->devices[index].contexts_end; number++) {
        struct context *context = &schedule->contexts[number];

        if (!has_work(context, index) || (context->client.number > 0) != are_clients || !is_dead(number))
            continue;
        context->was_killed_at_work = true;
        close_context(number, now);
    }
}

/* Collect the work of every context of a device. Returns how many there may be. */
static int work_left(int device, struct round_robin_work *work)
{
    int count = schedule->devices[device].contexts_end;

    for (int index = 0; index < count; index++) {
        const struct context *context = &schedule->contexts[index];

        work[index] = (struct round_robin_work){0};
        if (has_work(context, device))
            work[index] = (struct round_robin_work){context->promised_at - context->reached_at, context->client.multiprocessors};
    }
    return count;
}

static void subtract(struct round_robin_work *work, const struct stretch *stretch)
{
    for (int index = 0; index < stretch->count; index++)
        work[stretch->contexts[index]].left_ns -= stretch->to_ns - stretch->from_ns;
}

static void advance_in_slices(int index, uint64_t now)
{
    struct device *device = &schedule->devices[index];
    struct round_robin_work work[SCHEDULE_CONTEXTS_MAX];
    int count = work_left(index, work);
    struct stretch stretch;

    while (round_robin_next(&device->order, &rule, work, count, now, &stretch)) {
        subtract(work, &stretch);
        for (int runner = 0; runner < stretch.count; runner++)
            run(stretch.contexts[runner], stretch.from_ns, stretch.to_ns);
        history_add(&schedule->devices_past[index], stretch.from_ns, stretch.to_ns);
    }
}

static void advance_all_at_once(int index, uint64_t now)
{
    struct device *device = &schedule->devices[index];
    struct round_robin_work work[SCHEDULE_CONTEXTS_MAX];
    uint64_t from = device->order.at_ns, longest = 0;
    int count = work_left(index, work);

    for (int context = 0; context < count; context++) {
        uint64_t length = work[context].left_ns < now - from ? work[context].left_ns : now - from;

        if (length)
            run(context, from, from + length);
        longest = length > longest ? length : longest;
    }
    if (longest)
        history_add(&schedule->devices_past[index], from, from + longest);
    device->order.at_ns = now;
}

uint64_t schedule_lock(int index)
{
    struct device *device = &schedule->devices[index];
    bool looks;
    uint64_t now;

    shared_lock_take(&file, &device->lock);
    now = hw_now_ns();
    looks = now >= device->looked_ns + LIVENESS_NS;
    if (looks) {
        device->looked_ns = now;
        bury(index, now, false);
    }
    if (now > device->order.at_ns && is_concurrent)
        advance_all_at_once(index, now);
    else if (now > device->order.at_ns)
        advance_in_slices(index, now);
    /* Only a client that still has work now was surely killed at work. */
    if (looks)
        bury(index, now, true);
    return now;
}

void schedule_unlock(int device)
{
    shared_lock_give(&schedule->devices[device].lock);
}

/* Contexts */

/* Return a context that was never used, or the device's that was closed first; its past is lost. */
static int find_free(int device)
{
    int best = -1;

    for (int index = 0; index < SCHEDULE_CONTEXTS_MAX; index++) {
        const struct context *context = &schedule->contexts[index];

        if (!context->device)
            return index;
        if (!is_on(context, device))
            continue;
        if (is_dead(index))
            close_context(index, hw_now_ns());
        if (context->is_open)
            continue;
        if (best < 0 || context->closed_ns < schedule->contexts[best].closed_ns)
            best = index;
    }
    return best;
}

static void begin_context(int index, int device, struct schedule_client client)
{
    struct context *context = &schedule->contexts[index];

    if (!this_process)
        this_process = ++schedule->processes;
    history_clear(&schedule->contexts_past[index]);
    context->slices_begun = context->reached_at = context->promised_at = 0;
    context->pid = getpid();
    context->process = this_process;
    context->client = client;
    context->was_killed_at_work = false;
    context->is_open = true;
    context->device = device + 1;
    is_mine[index] = true;
    if (index >= schedule->devices[device].contexts_end)
        schedule->devices[device].contexts_end = index + 1;
}

int schedule_context_open(int device, struct schedule_client client)
{
    int index;

    shared_lock_take(&file, &schedule->births);
    index = find_free(device);
    if (index >= 0 && shared_file_claim(&file, index))
        begin_context(index, device, client);
    else
        index = -1;
    shared_lock_give(&schedule->births);
    return index;
}

void schedule_context_close(int context)
{
    close_context(context, hw_now_ns());
    is_mine[context] = false;
    shared_file_release(&file, context);
}

/* What ran until a process ended has run. Of a killed process that is known only up to the last question. */
__attribute__((destructor)) static void settle(void)
{
    for (int context = 0; context < SCHEDULE_CONTEXTS_MAX; context++) {
        if (!is_mine[context])
            continue;
        schedule_lock(device_of(context));
        schedule_context_close(context);
        schedule_unlock(device_of(context));
    }
}

uint64_t schedule_reached_at(int context)
{
    return schedule->contexts[context].reached_at;
}

uint64_t schedule_owner(int context)
{
    return schedule->contexts[context].is_open && !is_dead(context) ? schedule->contexts[context].process : 0;
}

void schedule_promise(int context, uint64_t at)
{
    schedule->contexts[context].promised_at = at;
}

uint64_t schedule_when_ns(int index, uint64_t at)
{
    const struct context *context = &schedule->contexts[index];
    uint64_t oldest = context->slices_begun > SLICES_KEPT ? context->slices_begun - SLICES_KEPT : 0;
    uint64_t when = 0;

    for (uint64_t number = context->slices_begun; number > oldest; number--) {
        const struct slice *slice = &schedule->slices[index][(number - 1) % SLICES_KEPT];

        when = slice->from_ns;
        if (slice->from_at < at)
            return slice->from_ns + (at - slice->from_at);
    }
    return when;
}

static bool does_run(const struct stretch *stretch, int context)
{
    for (int index = 0; index < stretch->count; index++)
        if (stretch->contexts[index] == context)
            return true;
    return false;
}

uint64_t schedule_expect_ns(int index, uint64_t at)
{
    const struct context *context = &schedule->contexts[index];
    int device = device_of(index);
    struct round_robin order = schedule->devices[device].order;
    struct round_robin_work work[SCHEDULE_CONTEXTS_MAX];
    uint64_t wanted = at - context->reached_at;
    int count = work_left(device, work);
    struct stretch stretch;

    if (is_concurrent)
        return order.at_ns + wanted;
    for (int ahead = 0; ahead < STRETCHES_AHEAD && round_robin_next(&order, &rule, work, count, UINT64_MAX, &stretch); ahead++) {
        uint64_t length = stretch.to_ns - stretch.from_ns;
        bool runs = does_run(&stretch, index);

        subtract(work, &stretch);
        if (runs && length >= wanted)
            return stretch.from_ns + wanted;
        if (runs)
            wanted -= length;
    }
    return order.at_ns + wanted;
}

bool schedule_client_has_work(int device, uint64_t client, bool or_had)
{
    bool is_any = false;

    schedule_lock(device);
    for (int index = 0; index < schedule->devices[device].contexts_end; index++) {
        const struct context *context = &schedule->contexts[index];

        if (is_on(context, device) && context->client.number == client)
            is_any |= has_work(context, device) || (or_had && context->was_killed_at_work);
    }
    schedule_unlock(device);
    return is_any;
}

/* The past */

static uint64_t busy_within(const struct history *history, uint64_t from_ns, uint64_t to_ns)
{
    return history_busy_ns(history, to_ns) - history_busy_ns(history, from_ns);
}

int schedule_uses(int device, uint64_t from_ns, uint64_t to_ns, struct schedule_use *uses)
{
    int count = 0;

    schedule_lock(device);
    for (int index = 0; index < schedule->devices[device].contexts_end; index++) {
        const struct context *context = &schedule->contexts[index];
        uint64_t busy = is_on(context, device) ? busy_within(&schedule->contexts_past[index], from_ns, to_ns) : 0;
        int same = 0;

        while (same < count && uses[same].process != context->process)
            same++;
        if (busy && same == count)
            uses[count++] = (struct schedule_use){context->process, context->pid, 0};
        if (busy)
            uses[same].busy_ns += busy;
    }
    schedule_unlock(device);
    return count;
}

uint64_t schedule_busy_ns(int device, pid_t pid, uint64_t from_ns, uint64_t to_ns)
{
    struct schedule_use uses[SCHEDULE_CONTEXTS_MAX];
    uint64_t busy = 0;
    int count;

    if (!pid) {
        schedule_lock(device);
        busy = busy_within(&schedule->devices_past[device], from_ns, to_ns);
        schedule_unlock(device);
        return busy;
    }
    count = schedule_uses(device, from_ns, to_ns, uses);
    for (int index = 0; index < count; index++)
        if (uses[index].pid == pid)
            busy += uses[index].busy_ns;
    return busy;
}
