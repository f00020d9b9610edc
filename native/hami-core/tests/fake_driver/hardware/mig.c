#include "hardware/mig.h"

#include <stdio.h>
#include <string.h>

#include "driver/conditions.h"
#include "driver/driver.h"
#include "hardware/readings.h"
#include "hardware/state.h"

const struct mig_model *mig_model_of(int gpu)
{
    if (gpu >= HW_CONFIGURED_MAX || hw_device(gpu)->parent >= 0)
        return NULL;
    for (int row = 0; row < HW_CONFIGURED_MAX; row++)
        if (hw_device(row)->parent == gpu)
            return NULL;
    return mig_model(hw_device(gpu)->name);
}

/* The caller of the following functions holds the lock. */

static struct hw_gpu *state_of(int gpu)
{
    return &hw_state->gpus[gpu];
}

static struct hw_instance *row_of(int device)
{
    return &hw_state->instances[device - HW_CONFIGURED_MAX];
}

/* An instance ceases to be a device first, and then to be known. The row keeps its GPU, because a reader may still be at it. */
static void remove_compute(struct hw_instance *instance)
{
    __atomic_store_n(instance->device.uuid, '\0', __ATOMIC_RELEASE);
    __atomic_store_n(&instance->compute.serial, 0, __ATOMIC_RELEASE);
}

static void remove_all(int gpu)
{
    for (int index = 0; index < HW_INSTANCES_MAX; index++)
        if (hw_state->instances[index].device.parent == gpu)
            remove_compute(&hw_state->instances[index]);
    for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++)
        state_of(gpu)->instances[index].serial = 0;
}

static void activate(int gpu)
{
    remove_all(gpu);
    state_of(gpu)->is_mig = state_of(gpu)->is_mig_pending;
}

/* Notice a reset, or a load of the driver. On models that need no reset a load ends the mode. Other devices have no instances. */
static void settle(int gpu)
{
    const struct mig_model *model = mig_model_of(gpu);
    struct hw_gpu *state = model ? state_of(gpu) : NULL;
    int64_t resets = reading(gpu, "resets", 0), loads = conditions_number("driver", "loads", 1);

    if (!state || (state->resets == resets && state->loads == loads))
        return;
    if (!model->needs_reset && state->loads != loads)
        state->is_mig_pending = false;
    activate(gpu);
    state->resets = resets;
    state->loads = loads;
}

static void lock(int gpu)
{
    hw_lock();
    settle(gpu);
}

static struct mig_gpu_instance *gpu_instance_of(uint64_t serial)
{
    for (int gpu = 0; serial && gpu < HW_CONFIGURED_MAX; gpu++)
        for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++)
            if (state_of(gpu)->instances[index].serial == serial)
                return &state_of(gpu)->instances[index];
    return NULL;
}

static struct hw_instance *compute_instance_of(uint64_t serial)
{
    for (int index = 0; serial && index < HW_INSTANCES_MAX; index++)
        if (hw_state->instances[index].compute.serial == serial)
            return &hw_state->instances[index];
    return NULL;
}

static bool is_busy(int device)
{
    hw_reap_dead();
    for (int position = 0; position < hw_state->processes_end; position++)
        if (hw_state->processes[position].pid && hw_state->processes[position].device[device].contexts)
            return true;
    return false;
}

static bool is_gpu_busy(int gpu)
{
    for (int row = 0; row < hw_device_count(); row++)
        if ((row == gpu || hw_device(row)->parent == gpu) && is_busy(row))
            return true;
    return false;
}

static bool overlap(struct mig_span one, struct mig_span other)
{
    return one.start < other.start + other.size && other.start < one.start + one.size;
}

static bool is_free(int gpu, struct mig_span span)
{
    for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++)
        if (state_of(gpu)->instances[index].serial && overlap(state_of(gpu)->instances[index].span, span))
            return false;
    return true;
}

static bool is_compute_free(uint64_t gpu_instance, struct mig_span span)
{
    for (int index = 0; index < HW_INSTANCES_MAX; index++) {
        const struct mig_compute_instance *other = &hw_state->instances[index].compute;

        if (other->serial && other->gpu_instance == gpu_instance && overlap(other->span, span))
            return false;
    }
    return true;
}

/* Some profiles have engines of which there are too few for each place, so fewer instances than places may exist. */
static unsigned int count_of(int gpu, unsigned int profile_id)
{
    unsigned int count = 0;

    for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++)
        count += state_of(gpu)->instances[index].serial && state_of(gpu)->instances[index].profile_id == profile_id;
    return count;
}

static unsigned int capacity(int gpu, const struct mig_profile *profile)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX];
    unsigned int places = mig_spans(profile, spans), fitting = 0, left;

    for (unsigned int place = 0; place < places; place++)
        fitting += is_free(gpu, spans[place]);
    left = profile->instances - count_of(gpu, profile->id);
    return fitting < left ? fitting : left;
}

/* Choose the wanted span, or without one the first free. MIG_INVALID if it is not among `spans`, MIG_NO_ROOM if it is taken. */
static enum mig_result choose(const struct mig_span *wanted, const struct mig_span *spans, unsigned int count, const bool *are_free,
                              struct mig_span *chosen)
{
    enum mig_result result = wanted ? MIG_INVALID : MIG_NO_ROOM;

    for (unsigned int index = 0; index < count; index++) {
        if (wanted && (spans[index].start != wanted->start || spans[index].size != wanted->size))
            continue;
        if (are_free[index]) {
            *chosen = spans[index];
            return MIG_DONE;
        }
        result = MIG_NO_ROOM;
    }
    return result;
}

/* As the driver numbers them: by their place in halves of the memory. */
static unsigned int gpu_instance_id(struct mig_span span)
{
    return span.size >= 8 ? 0 : span.size == 4 ? 1 + span.start / 4 : span.size == 2 ? 3 + span.start / 2 : 7 + span.start;
}

static unsigned int free_compute_id(uint64_t gpu_instance)
{
    unsigned int id = 0;

    for (int index = 0; index < HW_INSTANCES_MAX; index++) {
        const struct mig_compute_instance *other = &hw_state->instances[index].compute;

        if (other->serial && other->gpu_instance == gpu_instance && other->id == id) {
            id++;
            index = -1;
        }
    }
    return id;
}

static unsigned int free_index(int gpu)
{
    unsigned int free = 0;

    for (int index = 0; index < HW_INSTANCES_MAX; index++) {
        const struct hw_instance *other = &hw_state->instances[index];

        if (other->compute.serial && other->device.parent == gpu && other->compute.index == free) {
            free++;
            index = -1;
        }
    }
    return free;
}

/* A row that no program is on: an instance may have been removed by force under one. */
static struct hw_instance *free_row(void)
{
    for (int index = 0; index < HW_INSTANCES_MAX; index++)
        if (!hw_state->instances[index].compute.serial && !is_busy(HW_CONFIGURED_MAX + index))
            return &hw_state->instances[index];
    return NULL;
}

/* The same instance of the same GPU has the same UUID again. Source of the constants: FNV-1a. */
static void write_uuid(char *text, size_t size, const char *gpu, unsigned int instance, unsigned int compute)
{
    char name[128];
    uint64_t halves[2] = {0xcbf29ce484222325u, 0x84222325cbf29ce4u};

    snprintf(name, sizeof(name), "%s/%u/%u", gpu, instance, compute);
    for (const char *letter = name; *letter; letter++)
        for (int half = 0; half < 2; half++)
            halves[half] = (halves[half] ^ (unsigned char)*letter) * 0x100000001b3u;
    snprintf(text, size, "MIG-%08x-%04x-5%03x-a%03x-%012llx", (unsigned int)(halves[0] >> 32),
             (unsigned int)(halves[0] >> 16 & 0xffff), (unsigned int)(halves[0] & 0xfff), (unsigned int)(halves[1] >> 48 & 0xfff),
             (unsigned long long)(halves[1] & 0xffffffffffffu));
}

/* Describe the device of a compute instance, except for its UUID, which makes it a device. */
static void describe(struct hw_device *device, const struct mig_gpu_instance *within, const struct mig_compute_instance *compute)
{
    struct hw_device made = *hw_device(within->gpu);
    const struct mig_profile *profile = mig_profile_of_id(mig_model_of(within->gpu), within->profile_id);
    const struct mig_compute_profile *part = mig_compute_profile(profile, compute->kind);
    bool is_whole = part->slices == profile->slices;

    made.uuid[0] = '\0';
    snprintf(made.name, sizeof(made.name), "%.60s MIG %s%s%s", hw_device(within->gpu)->name, is_whole ? "" : part->name,
             is_whole ? "" : ".", profile->name);
    made.memory_bytes = profile->memory_mib * HW_MIB;
    made.parent = within->gpu;
    made.instance = (int)within->id;
    made.compute = (int)compute->id;
    *device = made;
}

/* Functions that take the lock */

bool mig_is_on(int gpu)
{
    bool is_on;

    if (!mig_model_of(gpu))
        return false;
    lock(gpu);
    is_on = state_of(gpu)->is_mig;
    hw_unlock();
    return is_on;
}

bool mig_is_pending(int gpu)
{
    bool is_pending;

    if (!mig_model_of(gpu))
        return false;
    lock(gpu);
    is_pending = state_of(gpu)->is_mig_pending;
    hw_unlock();
    return is_pending;
}

enum mig_result mig_set_mode(int gpu, bool is_on)
{
    const struct mig_model *model = mig_model_of(gpu);
    bool has_clients = model->needs_reset && driver_has_other_clients();
    enum mig_result result = MIG_DONE;

    lock(gpu);
    state_of(gpu)->is_mig_pending = is_on;
    if (state_of(gpu)->is_mig == is_on)
        result = MIG_DONE;
    else if (has_clients || is_gpu_busy(gpu))
        result = MIG_IN_USE;
    else if (reading(gpu, "mig-needs-reset", 0))
        result = MIG_NEEDS_RESET;
    else
        activate(gpu);
    hw_unlock();
    return result;
}

static enum mig_result create(int gpu, const struct mig_profile *profile, const struct mig_span *wanted, uint64_t *serial)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX], span;
    bool are_free[MIG_PLACEMENTS_MAX] = {false};
    unsigned int count = mig_spans(profile, spans);
    enum mig_result result;

    for (unsigned int index = 0; index < count; index++)
        are_free[index] = is_free(gpu, spans[index]);
    result = choose(wanted, spans, count, are_free, &span);
    if (result != MIG_DONE || count_of(gpu, profile->id) >= profile->instances)
        return result != MIG_DONE ? result : MIG_NO_ROOM;
    for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++) {
        struct mig_gpu_instance *instance = &state_of(gpu)->instances[index];

        if (instance->serial)
            continue;
        *instance = (struct mig_gpu_instance){0, gpu, gpu_instance_id(span), profile->id, span};
        *serial = ++hw_state->serials;
        __atomic_store_n(&instance->serial, *serial, __ATOMIC_RELEASE);
        return MIG_DONE;
    }
    return MIG_NO_ROOM;
}

enum mig_result mig_create(int gpu, const struct mig_profile *profile, const struct mig_span *span, uint64_t *serial)
{
    enum mig_result result = MIG_NOT_SUPPORTED;

    lock(gpu);
    if (state_of(gpu)->is_mig)
        result = create(gpu, profile, span, serial);
    hw_unlock();
    return result;
}

static enum mig_result create_compute(const struct mig_gpu_instance *within, const struct mig_compute_profile *profile,
                                      const struct mig_span *wanted, uint64_t *serial)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX], span;
    bool are_free[MIG_PLACEMENTS_MAX] = {false};
    unsigned int count = mig_compute_spans(mig_profile_of_id(mig_model_of(within->gpu), within->profile_id), profile, spans);
    struct hw_instance *row = free_row();
    char uuid[sizeof(row->device.uuid)];
    enum mig_result result;

    for (unsigned int index = 0; index < count; index++)
        are_free[index] = is_compute_free(within->serial, spans[index]);
    result = choose(wanted, spans, count, are_free, &span);
    if (result != MIG_DONE || !row)
        return result != MIG_DONE ? result : MIG_NO_ROOM;
    row->compute = (struct mig_compute_instance){
        0, within->serial, free_compute_id(within->serial), profile->kind, free_index(within->gpu), span};
    describe(&row->device, within, &row->compute);
    write_uuid(uuid, sizeof(uuid), hw_device(within->gpu)->uuid, within->id, row->compute.id);
    memcpy(row->device.uuid + 1, uuid + 1, sizeof(uuid) - 1);
    hw_state->has_instances = true;
    *serial = ++hw_state->serials;
    __atomic_store_n(&row->compute.serial, *serial, __ATOMIC_RELEASE);
    __atomic_store_n(row->device.uuid, uuid[0], __ATOMIC_RELEASE);
    return MIG_DONE;
}

enum mig_result mig_create_compute(uint64_t gpu_instance, const struct mig_compute_profile *profile, const struct mig_span *span,
                                   uint64_t *serial)
{
    const struct mig_gpu_instance *within;
    enum mig_result result = MIG_INVALID;

    hw_lock();
    within = gpu_instance_of(gpu_instance);
    if (within)
        result = create_compute(within, profile, span, serial);
    hw_unlock();
    return result;
}

enum mig_result mig_destroy(uint64_t gpu_instance)
{
    struct mig_gpu_instance *instance;
    enum mig_result result = MIG_INVALID;

    hw_lock();
    instance = gpu_instance_of(gpu_instance);
    if (instance)
        result = is_compute_free(gpu_instance, (struct mig_span){0, MIG_PLACEMENTS_MAX}) ? MIG_DONE : MIG_IN_USE;
    if (result == MIG_DONE)
        instance->serial = 0;
    hw_unlock();
    return result;
}

enum mig_result mig_destroy_compute(uint64_t compute_instance)
{
    struct hw_instance *instance;
    enum mig_result result = MIG_INVALID;

    hw_lock();
    instance = compute_instance_of(compute_instance);
    if (instance)
        result = is_busy(HW_CONFIGURED_MAX + (int)(instance - hw_state->instances)) ? MIG_IN_USE : MIG_DONE;
    if (result == MIG_DONE)
        remove_compute(instance);
    hw_unlock();
    return result;
}

unsigned int mig_capacity(int gpu, const struct mig_profile *profile)
{
    unsigned int fitting;

    lock(gpu);
    fitting = state_of(gpu)->is_mig ? capacity(gpu, profile) : 0;
    hw_unlock();
    return fitting;
}

unsigned int mig_compute_capacity(uint64_t gpu_instance, const struct mig_compute_profile *profile)
{
    struct mig_span spans[MIG_PLACEMENTS_MAX];
    const struct mig_gpu_instance *within;
    unsigned int fitting = 0;

    hw_lock();
    within = gpu_instance_of(gpu_instance);
    if (within) {
        unsigned int count = mig_compute_spans(mig_profile_of_id(mig_model_of(within->gpu), within->profile_id), profile, spans);

        for (unsigned int index = 0; index < count; index++)
            fitting += is_compute_free(gpu_instance, spans[index]);
    }
    hw_unlock();
    return fitting;
}

bool mig_find(uint64_t serial, struct mig_gpu_instance *found)
{
    const struct mig_gpu_instance *instance;

    hw_lock();
    for (int gpu = 0; gpu < HW_CONFIGURED_MAX; gpu++)
        if (hw_device(gpu)->uuid[0])
            settle(gpu);
    instance = gpu_instance_of(serial);
    if (instance)
        *found = *instance;
    hw_unlock();
    return instance;
}

bool mig_find_compute(uint64_t serial, struct mig_compute_instance *found)
{
    const struct hw_instance *instance;

    hw_lock();
    instance = compute_instance_of(serial);
    if (instance)
        *found = instance->compute;
    hw_unlock();
    return instance;
}

unsigned int mig_list(int gpu, struct mig_gpu_instance *found)
{
    unsigned int count = 0;

    lock(gpu);
    for (int index = 0; index < MIG_GPU_INSTANCES_MAX; index++)
        if (state_of(gpu)->instances[index].serial)
            found[count++] = state_of(gpu)->instances[index];
    hw_unlock();
    return count;
}

unsigned int mig_list_compute(uint64_t gpu_instance, struct mig_compute_instance *found)
{
    unsigned int count = 0;

    hw_lock();
    for (int index = 0; index < HW_INSTANCES_MAX && count < MIG_PLACEMENTS_MAX; index++)
        if (hw_state->instances[index].compute.serial && hw_state->instances[index].compute.gpu_instance == gpu_instance)
            found[count++] = hw_state->instances[index].compute;
    hw_unlock();
    return count;
}

bool mig_of_device(int device, struct mig_gpu_instance *gpu_instance, struct mig_compute_instance *compute_instance)
{
    bool is_found = false;

    if (device < HW_CONFIGURED_MAX)
        return false;
    hw_lock();
    if (row_of(device)->compute.serial) {
        *compute_instance = row_of(device)->compute;
        is_found = gpu_instance_of(compute_instance->gpu_instance);
        if (is_found)
            *gpu_instance = *gpu_instance_of(compute_instance->gpu_instance);
    }
    hw_unlock();
    return is_found;
}
