/*
 * Every function of a fake library: its name, what implements it, how often it was called, and what goes wrong with it.
 *
 * The sources write a function under its own name, and a generated header calls it fake_<name> instead, so that the library's own
 * calls go past the entries: only a program's are counted and disturbed. What nobody implements answers fake_entry_missing().
 */
#ifndef FAKE_ENTRY_H
#define FAKE_ENTRY_H

#include <stdbool.h>
#include <stdint.h>

/* 32 bytes, which entry.S counts on. */
struct fake_entry {
    void *function;
    uint64_t calls;
    const char *symbol;
    uint64_t since; /* CUDA version, as 1000 * major + 10 * minor */
};

/* In the order of FAKE_NAMES. */
extern struct fake_entry fake_entries[];
extern const int fake_entry_count;

/* The CUDA version that the library is of unless it is told otherwise. */
extern const int fake_entry_version;

/* The exported function of each entry; NULL where FAKE_NEWEST leaves it out. */
extern void *const fake_exports[];

/* What a function answers that nobody implements; the library's to say. */
int fake_entry_missing(void);
bool fake_entry_is_missing(const struct fake_entry *entry);

/* For tests to find by dlsym: how often a program called an exported function of this library; 0 for a name that it lacks. */
uint64_t fake_calls(const char *symbol);

#endif
