#include "charges.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#include "lock_rank.h"

enum { SHARDS = 16, FIRST_ROOM = 64 };

struct shard {
    pthread_mutex_t mutex;
    struct hami_charge *slots;
    uint64_t room; /* a power of two, or 0 */
    uint64_t count;
};

struct hami_charges {
    struct shard shards[SHARDS];
};

#define EMPTY_CHARGES                                                 \
    {                                                                 \
        {                                                             \
            [0 ... SHARDS - 1] = {.mutex = PTHREAD_MUTEX_INITIALIZER} \
        }                                                             \
    }

struct hami_charges hami_pointers = EMPTY_CHARGES;
struct hami_charges hami_handles = EMPTY_CHARGES;
struct hami_charges hami_mappings = EMPTY_CHARGES;
struct hami_charges hami_pools = EMPTY_CHARGES;
struct hami_charges hami_graphs = EMPTY_CHARGES;
struct hami_charges hami_arrays = EMPTY_CHARGES;
struct hami_charges hami_imports = EMPTY_CHARGES;
struct hami_charges hami_bindings = EMPTY_CHARGES;
struct hami_charges hami_contexts = EMPTY_CHARGES;
struct hami_charges hami_greens = EMPTY_CHARGES;

static uint64_t hash(uint64_t key)
{
    key = (key ^ key >> 33) * 0xff51afd7ed558ccdu;
    key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53u;
    return key ^ key >> 33;
}

static struct shard *shard_of(struct hami_charges *charges, uint64_t key)
{
    return &charges->shards[hash(key) >> 60];
}

/* Discharging may end an allocation from a pool, or a use of a handle, while another table's shard is locked. */
static enum hami_lock_rank rank_of(const struct hami_charges *charges)
{
    return charges == &hami_pools || charges == &hami_handles ? HAMI_RANK_OWNERS : HAMI_RANK_CHARGES;
}

static void lock(const struct hami_charges *charges, struct shard *shard)
{
    hami_lock(&shard->mutex, rank_of(charges));
}

static void unlock(const struct hami_charges *charges, struct shard *shard)
{
    hami_unlock(&shard->mutex, rank_of(charges));
}

static uint64_t home(const struct shard *shard, uint64_t key)
{
    return hash(key) & (shard->room - 1);
}

static struct hami_charge *find(struct shard *shard, uint64_t key)
{
    if (!shard->room)
        return NULL;
    for (uint64_t slot = home(shard, key); shard->slots[slot].key; slot = (slot + 1) & (shard->room - 1))
        if (shard->slots[slot].key == key)
            return &shard->slots[slot];
    return NULL;
}

static void place(struct shard *shard, struct hami_charge charge)
{
    uint64_t slot = home(shard, charge.key);

    while (shard->slots[slot].key)
        slot = (slot + 1) & (shard->room - 1);
    shard->slots[slot] = charge;
}

/* mmap instead of malloc: the hook may be called from the program's own allocator. */
static bool grow(struct shard *shard)
{
    struct shard old = *shard;
    uint64_t room = old.room ? old.room * 2 : FIRST_ROOM;
    void *slots = mmap(NULL, room * sizeof(*shard->slots), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (slots == MAP_FAILED)
        return false;
    shard->slots = slots;
    shard->room = room;
    for (uint64_t slot = 0; slot < old.room; slot++)
        if (old.slots[slot].key)
            place(shard, old.slots[slot]);
    if (old.slots)
        munmap(old.slots, old.room * sizeof(*old.slots));
    return true;
}

/* Close the gap so that no search ends early: each follower moves back, unless that would put it before its home. */
static void erase(struct shard *shard, struct hami_charge *charge)
{
    uint64_t mask = shard->room - 1;
    uint64_t gap = (uint64_t)(charge - shard->slots);

    for (uint64_t slot = (gap + 1) & mask; shard->slots[slot].key; slot = (slot + 1) & mask) {
        uint64_t from_home = (slot - home(shard, shard->slots[slot].key)) & mask;

        if (from_home >= ((slot - gap) & mask)) {
            shard->slots[gap] = shard->slots[slot];
            gap = slot;
        }
    }
    shard->slots[gap].key = 0;
    shard->count--;
}

bool hami_charges_put(struct hami_charges *charges, struct hami_charge charge, struct hami_charge *replaced)
{
    struct shard *shard = shard_of(charges, charge.key);
    struct hami_charge *known;
    bool is_put = true;

    replaced->key = 0;
    lock(charges, shard);
    known = find(shard, charge.key);
    if (known) {
        *replaced = *known;
        *known = charge;
        known->references += charge.references ? replaced->references : 0;
    } else if (shard->count * 2 < shard->room || grow(shard)) {
        place(shard, charge);
        shard->count++;
    } else {
        is_put = false;
    }
    unlock(charges, shard);
    return is_put;
}

enum change { NOTHING, REMOVE, RESIZE, MARK, RETAIN, DROP };

/*
 * Find a charge, copy it to `*found` with its new references, and change it under the lock of its shard. `value` is the new bytes or
 * kind. DROP removes a charge without references. False if the key is unknown.
 */
static inline bool find_and_change(struct hami_charges *charges, uint64_t key, enum change change, uint64_t value,
                                   struct hami_charge *found)
{
    struct shard *shard = shard_of(charges, key);
    struct hami_charge *known;

    lock(charges, shard);
    known = find(shard, key);
    if (known) {
        known->references += (change == RETAIN) - (change == DROP);
        *found = *known;
        if (change == RESIZE)
            known->bytes = value;
        else if (change == MARK)
            known->kind = (int16_t)value;
        else if (change == REMOVE || (change == DROP && known->references <= 0))
            erase(shard, known);
    }
    unlock(charges, shard);
    return known != NULL;
}

bool hami_charges_take(struct hami_charges *charges, uint64_t key, struct hami_charge *taken)
{
    return find_and_change(charges, key, REMOVE, 0, taken);
}

bool hami_charges_find(struct hami_charges *charges, uint64_t key, struct hami_charge *found)
{
    return find_and_change(charges, key, NOTHING, 0, found);
}

int hami_charges_device(struct hami_charges *charges, uint64_t key)
{
    struct hami_charge known;

    return hami_charges_find(charges, key, &known) ? known.device : -1;
}

uint64_t hami_charges_resize(struct hami_charges *charges, uint64_t key, uint64_t bytes)
{
    struct hami_charge before;

    return find_and_change(charges, key, RESIZE, bytes, &before) ? before.bytes : 0;
}

bool hami_charges_mark(struct hami_charges *charges, uint64_t key, int16_t kind)
{
    struct hami_charge before;

    return find_and_change(charges, key, MARK, (uint64_t)kind, &before);
}

void hami_charges_retain(struct hami_charges *charges, uint64_t key)
{
    struct hami_charge retained;

    find_and_change(charges, key, RETAIN, 0, &retained);
}

bool hami_charges_drop(struct hami_charges *charges, uint64_t key, struct hami_charge *taken)
{
    return find_and_change(charges, key, DROP, 0, taken) && taken->references <= 0;
}

bool hami_charges_next(struct hami_charges *charges, struct hami_charges_cursor *cursor, struct hami_charge *found)
{
    for (; cursor->shard < SHARDS; cursor->shard++, cursor->slot = 0) {
        struct shard *shard = &charges->shards[cursor->shard];
        bool is_found = false;

        lock(charges, shard);
        while (!is_found && cursor->slot < shard->room) {
            *found = shard->slots[cursor->slot++];
            is_found = found->key != 0;
        }
        unlock(charges, shard);
        if (is_found)
            return true;
    }
    return false;
}

void hami_charges_take_owned(struct hami_charges *charges, uint64_t owner, void (*discharge)(const struct hami_charge *))
{
    for (int index = 0; index < SHARDS; index++) {
        struct shard *shard = &charges->shards[index];

        lock(charges, shard);
        for (uint64_t slot = 0; slot < shard->room;) {
            struct hami_charge *charge = &shard->slots[slot];

            if (!charge->key || charge->owner != owner) {
                slot++;
                continue;
            }
            discharge(charge);
            erase(shard, charge);
        }
        unlock(charges, shard);
    }
}

void hami_charges_change_owner(struct hami_charges *charges, uint64_t owner, uint64_t next)
{
    for (int index = 0; index < SHARDS; index++) {
        struct shard *shard = &charges->shards[index];

        lock(charges, shard);
        for (uint64_t slot = 0; slot < shard->room; slot++)
            if (shard->slots[slot].key && shard->slots[slot].owner == owner)
                shard->slots[slot].owner = next;
        unlock(charges, shard);
    }
}

uint64_t hami_charges_count(struct hami_charges *charges)
{
    uint64_t count = 0;

    for (int index = 0; index < SHARDS; index++) {
        lock(charges, &charges->shards[index]);
        count += charges->shards[index].count;
        unlock(charges, &charges->shards[index]);
    }
    return count;
}

void hami_charges_forget(struct hami_charges *charges)
{
    for (int index = 0; index < SHARDS; index++) {
        struct shard *shard = &charges->shards[index];

        if (shard->slots)
            munmap(shard->slots, shard->room * sizeof(*shard->slots));
        memset(shard, 0, sizeof(*shard));
        pthread_mutex_init(&shard->mutex, NULL);
    }
}
