/*
 * The environment this process was started with, parsed once, at the first hooked call.
 *
 * Owns the grammar; options.def owns names, defaults and what a bad value does. Later changes of the environment have no effect.
 */
#ifndef HAMI_OPTIONS_H
#define HAMI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"

/* What a limit becomes that cannot be parsed: the least a region can say, for 0 means none there. */
#define HAMI_REFUSE_ALL_BYTES 1u
#define HAMI_REFUSE_ALL_PERCENT 1u

typedef uint64_t hami_option_bytes_by_device[HAMI_DEVICES_MAX];
typedef uint64_t hami_option_percent_by_device[HAMI_DEVICES_MAX];
typedef const char *hami_option_text;
typedef int hami_option_number;
typedef bool hami_option_flag;
typedef enum { HAMI_POLICY_DEFAULT, HAMI_POLICY_FORCE, HAMI_POLICY_DISABLE } hami_option_policy;

/* A variable that peers set and this library needs not: known, so that it stands in the table, and never read. */
typedef struct {
} hami_option_ignored;

struct hami_options {
#define OPTION(kind, variable, field, ...) hami_option_##kind field;
#include "options.def"
#undef OPTION
};

/* Never NULL. Parses at the first call; safe in any thread. */
const struct hami_options *hami_options(void);

/* Parse all variables from the environment into `options`, complaining of bad values on stderr. For tests. */
void hami_options_parse(struct hami_options *options);

#endif
