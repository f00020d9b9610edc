/*
 * The options of this process: environment variables, parsed once at the first hooked call.
 *
 * Owns the grammar. options.def owns names, defaults and what a bad value does. Later changes of the environment have no effect.
 *
 * Beside a limits file the environment may only lower. The file's variables are the defaults of those that the environment lacks.
 * A limit that is the same in both is the plugin's, so it lowers nothing. The file names the region. The stricter policy holds, and
 * the library cannot be switched off. A program that runs as another user than its caller (AT_SECURE) has no environment, and no
 * region, because its caller must not name files; without a limits file the library does nothing in it.
 */
#ifndef HAMI_OPTIONS_H
#define HAMI_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "hami/region.h"
#include "limits_file.h"

/* The value of a limit that cannot be parsed: the smallest one the region can hold, because 0 means no limit there. */
#define HAMI_REFUSE_ALL_BYTES 1u
#define HAMI_REFUSE_ALL_PERCENT 1u

typedef uint64_t hami_option_bytes_by_device[HAMI_DEVICES_MAX];
typedef uint64_t hami_option_percent_by_device[HAMI_DEVICES_MAX];
typedef const char *hami_option_text;
typedef int hami_option_number;
typedef bool hami_option_flag;
typedef enum { HAMI_POLICY_DEFAULT, HAMI_POLICY_FORCE, HAMI_POLICY_DISABLE } hami_option_policy;

/* A variable that other programs set and this library ignores. It is listed so that the table of options is complete. */
typedef struct {
} hami_option_ignored;

struct hami_options {
#define OPTION(kind, variable, field, ...) hami_option_##kind field;
#include "options.def"
#undef OPTION
    const struct hami_limits_file *granted; /* as it was at the first call; never NULL */
};

/* Return the options; never NULL. Parses them at the first call. Safe in any thread. */
const struct hami_options *hami_options(void);

/* Parse all variables into `options`, beside a limits file, which must live as long. For tests. */
void hami_options_parse(struct hami_options *options, const struct hami_limits_file *granted);

#endif
