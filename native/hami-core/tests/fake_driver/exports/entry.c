/*
 * The table behind entry.S, and the faults in FAKE_DRIVER_FAULTS: `symbol:nth:result,...`.
 *
 * The nth call of that symbol, counted from 1 in each process, does nothing and returns the number `result`. KILL kills the process
 * before the call, KILL_AFTER after it, and SLEEP_<ms> delays it. A `*` for nth means every call.
 */
#include "exports/entry.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

enum { FAULTS_MAX = 32 };
enum effect { RETURN, KILL, KILL_AFTER, SLEEP };

struct fault {
    const struct fake_entry *entry;
    unsigned long long nth; /* 0: every call */
    enum effect effect;
    int result; /* or milliseconds */
};

HIDDEN bool fake_entry_is_armed;
HIDDEN void fake_entry_last_return(void);
HIDDEN void *fake_entry_interrupt(const struct fake_entry *entry, uint64_t call, void **return_address);
HIDDEN void fake_entry_die(void);

static struct fault faults[FAULTS_MAX];
static int fault_count;
static _Thread_local int result_of_fault;
HIDDEN _Thread_local const char *fake_entry_symbol = "";

static int missing(void)
{
    return fake_entry_missing();
}

/* What is not defined elsewhere. */
#define NAME(symbol, since) __attribute__((weak, alias("missing"))) int fake_##symbol(void);
#include FAKE_NAMES
#undef NAME

HIDDEN struct fake_entry fake_entries[] = {
#define NAME(symbol, since) {(void *)fake_##symbol, 0, #symbol, since},
#include FAKE_NAMES
#undef NAME
};

HIDDEN const int fake_entry_count = sizeof(fake_entries) / sizeof(fake_entries[0]);

HIDDEN const int fake_entry_version = FAKE_VERSION;

_Static_assert(sizeof(struct fake_entry) == 32, "entry.S counts on it");

bool fake_entry_is_missing(const struct fake_entry *entry)
{
    return entry->function == (void *)missing;
}

static struct fake_entry *entry_of(const char *symbol)
{
    for (int index = 0; index < fake_entry_count; index++)
        if (strcmp(fake_entries[index].symbol, symbol) == 0)
            return &fake_entries[index];
    return NULL;
}

static int fail(void)
{
    return result_of_fault;
}

void fake_entry_die(void)
{
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

void *fake_entry_interrupt(const struct fake_entry *entry, uint64_t call, void **return_address)
{
    for (int index = 0; index < fault_count; index++) {
        const struct fault *fault = &faults[index];

        if (fault->entry != entry || (fault->nth && fault->nth != call))
            continue;
        if (fault->effect == KILL)
            fake_entry_die();
        if (fault->effect == SLEEP) {
            nanosleep(&(struct timespec){fault->result / 1000, fault->result % 1000 * 1000000L}, NULL);
            return entry->function;
        }
        if (fault->effect == KILL_AFTER) {
            *return_address = (void *)fake_entry_last_return;
            return entry->function;
        }
        result_of_fault = fault->result;
        return (void *)fail;
    }
    fake_entry_symbol = entry->symbol;
    return fake_entry_has_conditions && fake_entry_answer(entry, &result_of_fault) ? (void *)fail : entry->function;
}

/* A per-thread variant that is not implemented is its plain function: it does nothing that depends on the default stream. */
static void complete_variants(void)
{
    for (int index = 0; index < fake_entry_count; index++) {
        struct fake_entry *entry = &fake_entries[index];
        size_t length = strlen(entry->symbol);
        char base[96];

        if (!fake_entry_is_missing(entry) || length < 6 ||
            (strcmp(entry->symbol + length - 5, "_ptsz") != 0 && strcmp(entry->symbol + length - 5, "_ptds") != 0))
            continue;
        snprintf(base, sizeof(base), "%.*s", (int)length - 5, entry->symbol);
        if (entry_of(base))
            entry->function = entry_of(base)->function;
    }
}

/* The symbols of the other library are skipped. */
static void add_fault(char *text)
{
    const char *symbol = strsep(&text, ":");
    const char *nth = strsep(&text, ":");
    const struct fake_entry *entry = entry_of(symbol);
    struct fault *fault = &faults[fault_count];

    if (!nth || !text || fault_count == FAULTS_MAX) {
        fprintf(stderr, "fake driver: FAKE_DRIVER_FAULTS: %s is not symbol:nth:result, or one too many\n", symbol);
        return;
    }
    if (!entry)
        return;
    *fault = (struct fault){.entry = entry, .nth = strtoull(nth, NULL, 10)};
    if (strncmp(text, "SLEEP_", 6) == 0) {
        fault->effect = SLEEP;
        text += 6;
    }
    if (strcmp(text, "KILL") == 0)
        fault->effect = KILL;
    else if (strcmp(text, "KILL_AFTER") == 0)
        fault->effect = KILL_AFTER;
    else
        fault->result = (int)strtol(text, NULL, 10);
    fault_count++;
}

__attribute__((constructor)) static void prepare(void)
{
    const char *setting = getenv("FAKE_DRIVER_FAULTS");
    char list[4096];
    char *rest = list;

    complete_variants();
    fake_entry_is_armed = fake_entry_has_conditions;
    if (!setting || !setting[0])
        return;
    snprintf(list, sizeof(list), "%s", setting);
    while (rest)
        add_fault(strsep(&rest, ","));
    fake_entry_is_armed |= fault_count > 0;
}

__attribute__((visibility("default"))) void fake_delay_next(const char *symbol, int milliseconds)
{
    const struct fake_entry *entry = entry_of(symbol);

    if (!entry || fault_count == FAULTS_MAX)
        return;
    faults[fault_count++] = (struct fault){entry, fake_calls(symbol) + 1, SLEEP, milliseconds};
    fake_entry_is_armed = true;
}

__attribute__((visibility("default"))) uint64_t fake_calls(const char *symbol)
{
    const struct fake_entry *entry = entry_of(symbol);

    return entry ? __atomic_load_n(&entry->calls, __ATOMIC_RELAXED) : 0;
}
