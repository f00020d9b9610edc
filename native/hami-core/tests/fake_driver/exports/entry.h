/*
 * Every function of a fake library: its name, its implementation, how often it was called, and its faults.
 *
 * The sources define a function under its own name, and a generated header renames it to fake_<name>. So the library's own calls
 * bypass the entries: only a program's calls are counted and disturbed. Functions that are not implemented return
 * fake_entry_missing().
 */
#ifndef FAKE_ENTRY_H
#define FAKE_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

/* 32 bytes; entry.S relies on that. */
struct fake_entry {
    void *function;
    uint64_t calls;
    const char *symbol;
    uint64_t since; /* CUDA version, as 1000 * major + 10 * minor */
};

/* In the order of FAKE_NAMES. */
extern struct fake_entry fake_entries[];
extern const int fake_entry_count;

/* The CUDA version of the library, unless FAKE_DRIVER_CUDA_VERSION is set. */
extern const int fake_entry_version;

/* The exported function of each entry; NULL if it is newer than FAKE_NEWEST. */
extern void *const fake_exports[];

/* The answer of a function that is not implemented. Each library defines it. */
int fake_entry_missing(void);
bool fake_entry_is_missing(const struct fake_entry *entry);

/*
 * Each library defines whether its calls may be disturbed by the node's conditions, and by what: fake_entry_answer() may wait, and
 * returns whether `result` takes the place of the call.
 */
extern const bool fake_entry_has_conditions;
bool fake_entry_answer(const struct fake_entry *entry, int *result);

/* The symbol that the thread called last, if calls may be disturbed. */
extern _Thread_local const char *fake_entry_symbol;

/* For tests, which find it with dlsym: how often a program called an exported function; 0 for an unknown name. */
uint64_t fake_calls(const char *symbol);

/* The same: let the next call of it, in any thread, take so long. Nothing for an unknown name. Not while other threads call. */
void fake_delay_next(const char *symbol, int milliseconds);

#endif
