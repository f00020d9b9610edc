#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/auxv.h>

#include "log.h"

enum { COMPLAINTS_MAX = 8 };

static struct hami_options parsed;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Complaints are stored until the log level is known. */
static char complaints[COMPLAINTS_MAX][320];
static int complaint_count;

static void complain(const char *variable, const char *value, const char *wanted, const char *consequence)
{
    if (complaint_count < COMPLAINTS_MAX)
        snprintf(complaints[complaint_count++], sizeof(complaints[0]), "%s=%.80s is not %s: %s", variable, value, wanted,
                 consequence);
}

static const char *setting(const char *variable)
{
    const char *value = getenv(variable);

    return value && value[0] ? value : NULL;
}

/* Read digits as C does (decimal, 0x, leading 0). Returns what follows them, or NULL if there are none or too many. */
static const char *read_integer(const char *text, uint64_t *value)
{
    char *end;

    if (!isdigit((unsigned char)text[0]))
        return NULL;
    errno = 0;
    *value = strtoull(text, &end, 0);
    return errno ? NULL : end;
}

static bool parse_bytes(const char *text, uint64_t *bytes)
{
    static const char suffixes[] = "kmg";
    const char *end = read_integer(text, bytes);
    const char *suffix;
    int shift;

    if (!end)
        return false;
    if (!*end)
        return true;
    suffix = strchr(suffixes, tolower((unsigned char)*end));
    if (!suffix || end[1])
        return false;
    shift = 10 * (int)(suffix - suffixes + 1);
    if (*bytes > UINT64_MAX >> shift)
        return false;
    *bytes <<= shift;
    return true;
}

static bool parse_percent(const char *text, uint64_t *percent)
{
    const char *end = read_integer(text, percent);

    if (!end || *end)
        return false;
    if (*percent == 0 || *percent > 100)
        *percent = 100;
    return true;
}

/* Parse a variable for all devices, and `<variable>_<i>` for one device. */
static void parse_by_device(const char *variable, uint64_t *values, uint64_t fallback, uint64_t refuse,
                            bool (*parse)(const char *, uint64_t *), const char *wanted, const char *consequence)
{
    char name[64];
    const char *text = setting(variable);
    uint64_t general = fallback;

    if (text && !parse(text, &general)) {
        complain(variable, text, wanted, consequence);
        general = refuse;
    }
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        snprintf(name, sizeof(name), "%s_%d", variable, device);
        text = setting(name);
        values[device] = general;
        if (text && !parse(text, &values[device])) {
            complain(name, text, wanted, consequence);
            values[device] = refuse;
        }
    }
}

static void parse_bytes_by_device(const char *variable, hami_option_bytes_by_device *values, uint64_t fallback)
{
    parse_by_device(variable, *values, fallback, HAMI_REFUSE_ALL_BYTES, parse_bytes, "an integer with an optional suffix k, m or g",
                    "nothing can be allocated");
}

static void parse_percent_by_device(const char *variable, hami_option_percent_by_device *values, uint64_t fallback)
{
    parse_by_device(variable, *values, fallback, HAMI_REFUSE_ALL_PERCENT, parse_percent, "an integer percentage",
                    "the limit is 1 percent");
}

static void parse_text(const char *variable, const char **value, const char *fallback)
{
    const char *text = setting(variable);

    *value = text ? text : fallback;
}

static void parse_number(const char *variable, int *value, int fallback)
{
    const char *text = setting(variable);
    char *end;
    long number;

    *value = fallback;
    if (!text)
        return;
    errno = 0;
    number = strtol(text, &end, 10);
    if (errno || end == text || *end || number < 0 || number > INT_MAX)
        complain(variable, text, "an integer of 0 or more", "the default holds");
    else
        *value = (int)number;
}

static void parse_flag(const char *variable, bool *value, bool fallback)
{
    const char *text = setting(variable);

    *value = fallback;
    if (!text)
        return;
    if (!strcasecmp(text, "1") || !strcasecmp(text, "t") || !strcasecmp(text, "true"))
        *value = true;
    else if (!strcasecmp(text, "0") || !strcasecmp(text, "f") || !strcasecmp(text, "false"))
        *value = false;
    else
        complain(variable, text, "true or false", "the default holds");
}

static void parse_policy(const char *variable, hami_option_policy *value, hami_option_policy fallback)
{
    const char *text = setting(variable);

    *value = fallback;
    if (!text || !strcasecmp(text, "default"))
        return;
    if (!strcasecmp(text, "force"))
        *value = HAMI_POLICY_FORCE;
    else if (!strcasecmp(text, "disable"))
        *value = HAMI_POLICY_DISABLE;
    else
        complain(variable, text, "default, force or disable", "the default holds");
}

static void parse_ignored(const char *variable, hami_option_ignored *value, int fallback)
{
    (void)variable;
    (void)value;
    (void)fallback;
}

void hami_options_parse(struct hami_options *options)
{
#define OPTION(kind, variable, field, fallback, ...) parse_##kind(#variable, &options->field, fallback);
#include "options.def"
#undef OPTION
}

/* A program that runs as another user than its caller must not open files that the caller names: the library does nothing in it. */
static void parse_once(void)
{
    hami_options_parse(&parsed);
    if (getauxval(AT_SECURE))
        parsed.is_disabled = true;
    hami_log_set_level(parsed.log_level);
    for (int index = 0; index < complaint_count; index++)
        hami_log(HAMI_LOG_ERROR, "%s", complaints[index]);
}

const struct hami_options *hami_options(void)
{
    pthread_once(&once, parse_once);
    return &parsed;
}
