/*
 * What this process is charged for, by the driver's key (a pointer or a handle), in tables with constant-time access.
 *
 * A table is sixteen shards, each an open-addressing hash with its own lock. It grows by doubling. Knows nothing of the region: the
 * caller charges and discharges.
 * Fork: a child has none of its parent's device memory; call hami_charges_forget() in it.
 */
#ifndef HAMI_CHARGES_H
#define HAMI_CHARGES_H

#include <stdbool.h>
#include <stdint.h>

struct hami_charge {
    uint64_t key;   /* never 0 */
    uint64_t bytes;
    uint64_t owner; /* a context, pool or handle whose end also ends the charge; 0 for none */
    int16_t device; /* region index */
    int16_t kind;   /* for the caller */
    int32_t references;
};

struct hami_charges;

extern struct hami_charges hami_pointers; /* key: device pointer; owner: context */
extern struct hami_charges hami_handles;  /* key: VMM allocation handle; references: handles and mappings */
extern struct hami_charges hami_mappings; /* key: mapped address; owner: VMM allocation handle */
extern struct hami_charges hami_bindings; /* key: place in a multicast object; owner: the object; bytes: the allocation handle */
extern struct hami_charges hami_pools;    /* key: memory pool; references: its handle and its allocations */
extern struct hami_charges hami_graphs;   /* key: executable graph that allocates */
extern struct hami_charges hami_arrays;   /* key: array or mipmapped array; owner: context */
extern struct hami_charges hami_imports;  /* key: external memory */
extern struct hami_charges hami_contexts; /* key: context; bytes 0; references: cuCtxAttach's and its own */
extern struct hami_charges hami_greens;   /* key: green context; owner: CUDA ordinal; bytes 0 */

/*
 * Put a charge. Returns false if there is no memory for it. If the key exists, the driver has freed it, in a call that is not hooked
 * or is still in progress in another thread: the old charge is returned in `replaced` (key 0 otherwise), and the caller must
 * discharge it. Its references are added to the new charge's if that has any, because each will still be dropped.
 */
bool hami_charges_put(struct hami_charges *charges, struct hami_charge charge, struct hami_charge *replaced);

/* Remove a charge and return it in `*taken`; false if the key is unknown. */
bool hami_charges_take(struct hami_charges *charges, uint64_t key, struct hami_charge *taken);

/* Copy a charge to `*found`; false if the key is unknown. */
bool hami_charges_find(struct hami_charges *charges, uint64_t key, struct hami_charge *found);

/* Return the device of a charge; -1 if the key is unknown. */
int hami_charges_device(struct hami_charges *charges, uint64_t key);

/* Change a charge's bytes and return the old number; 0 if the key is unknown. */
uint64_t hami_charges_resize(struct hami_charges *charges, uint64_t key, uint64_t bytes);

/* Change a charge's kind. False if the key is unknown. */
bool hami_charges_mark(struct hami_charges *charges, uint64_t key, int16_t kind);

/* Where hami_charges_next() continues. It begins as {0}. */
struct hami_charges_cursor {
    int shard;
    uint64_t slot;
};

/*
 * Copy the next charge to `*found`; false after the last one. No lock is held between two calls: charges that are put or removed
 * meanwhile may be left out or copied twice.
 */
bool hami_charges_next(struct hami_charges *charges, struct hami_charges_cursor *cursor, struct hami_charge *found);

/* Add or drop a reference. hami_charges_drop() returns true if none is left: the charge is removed and returned in `*taken`. */
void hami_charges_retain(struct hami_charges *charges, uint64_t key);
bool hami_charges_drop(struct hami_charges *charges, uint64_t key, struct hami_charge *taken);

/* Remove every charge of an owner, and call `discharge` for each. A lock of this table is held. */
void hami_charges_take_owned(struct hami_charges *charges, uint64_t owner, void (*discharge)(const struct hami_charge *));

/* Give every charge of an owner to another owner. */
void hami_charges_change_owner(struct hami_charges *charges, uint64_t owner, uint64_t next);

/* Return the number of charges. */
uint64_t hami_charges_count(struct hami_charges *charges);

/* Forget all charges, in a forked child. */
void hami_charges_forget(struct hami_charges *charges);

#endif
