/*
 * What this process has been charged for, by the driver's own key (a pointer, a handle): put, taken and found in constant time.
 *
 * A table is sixteen shards, each an open-addressing hash under its own lock; it grows by doubling and never moves while it is small
 * enough. Knows nothing of the region: the caller charges and discharges.
 * Fork: a child has none of its parent's device memory; call hami_charges_forget() in it.
 */
#ifndef HAMI_CHARGES_H
#define HAMI_CHARGES_H

#include <stdbool.h>
#include <stdint.h>

struct hami_charge {
    uint64_t key;   /* never 0 */
    uint64_t bytes;
    uint64_t owner; /* what the charge ends with besides its own release: a context, a pool or a handle; 0 for none */
    int16_t device; /* region index */
    int16_t kind;   /* the caller's */
    int32_t references;
};

struct hami_charges;

extern struct hami_charges hami_pointers; /* key: device pointer; owner: context */
extern struct hami_charges hami_handles;  /* key: VMM allocation handle; references: handles and mappings */
extern struct hami_charges hami_mappings; /* key: mapped address; owner: VMM allocation handle */
extern struct hami_charges hami_pools;    /* key: memory pool; references: its handle and what was taken from it */
extern struct hami_charges hami_graphs;   /* key: executable graph that allocates */
extern struct hami_charges hami_arrays;   /* key: array or mipmapped array; owner: context */
extern struct hami_charges hami_imports;  /* key: external memory */
extern struct hami_charges hami_contexts; /* key: context; bytes 0; references: cuCtxAttach's and its own */
extern struct hami_charges hami_greens;   /* key: green context; owner: CUDA ordinal; bytes 0 */

/*
 * Put a charge. Returns false when there is no memory for it. A key that is there already was freed behind our back: its old charge
 * comes back in `replaced` (whose key is 0 otherwise) for the caller to discharge.
 */
bool hami_charges_put(struct hami_charges *charges, struct hami_charge charge, struct hami_charge *replaced);

/* Remove and return a charge; false when the key is unknown. */
bool hami_charges_take(struct hami_charges *charges, uint64_t key, struct hami_charge *taken);

/* Return a copy of a charge; false when the key is unknown. */
bool hami_charges_find(struct hami_charges *charges, uint64_t key, struct hami_charge *found);

/* Return the device of a charge; -1 when the key is unknown. */
int hami_charges_device(struct hami_charges *charges, uint64_t key);

/* Change a charge's bytes and return what they were; 0 when the key is unknown. */
uint64_t hami_charges_resize(struct hami_charges *charges, uint64_t key, uint64_t bytes);

/* Show every charge to `visit`, which may change its bytes, with a lock held that only this table's callers want. */
void hami_charges_each(struct hami_charges *charges, void (*visit)(struct hami_charge *charge, void *context), void *context);

/* Count a reference more or less. The charge is removed, returned in `taken`, and true, when none is left. */
void hami_charges_retain(struct hami_charges *charges, uint64_t key);
bool hami_charges_drop(struct hami_charges *charges, uint64_t key, struct hami_charge *taken);

/* Remove every charge of an owner, calling `discharge` for each with a lock held that only this table's callers want. */
void hami_charges_take_owned(struct hami_charges *charges, uint64_t owner, void (*discharge)(const struct hami_charge *));

/* How many there are. */
uint64_t hami_charges_count(struct hami_charges *charges);

/* Forget everything, in a forked child. */
void hami_charges_forget(struct hami_charges *charges);

#endif
