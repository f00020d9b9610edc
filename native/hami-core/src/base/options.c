#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
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
static struct {
    enum hami_log_level level;
    char text[320];
} complaints[COMPLAINTS_MAX];
static int complaint_count;

/* The limits file beside which the environment is parsed. */
static const struct hami_limits_file *granted;

__attribute__((format(printf, 2, 3))) static void complain_at(enum hami_log_level level, const char *format, ...)
{
    va_list arguments;

    if (complaint_count == COMPLAINTS_MAX)
        return;
    va_start(arguments, format);
    vsnprintf(complaints[complaint_count].text, sizeof(complaints[0].text), format, arguments);
    va_end(arguments);
    complaints[complaint_count++].level = level;
}

static void complain(const char *variable, const char *value, const char *wanted, const char *consequence)
{
    complain_at(HAMI_LOG_ERROR, "%s=%.80s is not %s: %s", variable, value, wanted, consequence);
}

static bool is_secure(void)
{
    return getauxval(AT_SECURE) != 0;
}

static const char *in_environment(const char *variable)
{
    const char *value = is_secure() ? NULL : getenv(variable);

    return value && value[0] ? value : NULL;
}

static const char *in_file(const char *variable)
{
    const char *value = hami_limits_setting(granted, variable);

    return value && value[0] ? value : NULL;
}

static const char *setting(const char *variable)
{
    const char *value = in_environment(variable);

    return value ? value : in_file(variable);
}

/* Return a limit that the environment has and the file does not. */
static const char *own_limit(const char *variable)
{
    const char *value = in_environment(variable), *given = in_file(variable);

    return value && given && strcmp(value, given) == 0 ? NULL : value;
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
    const char *text = own_limit(variable);
    uint64_t general = fallback;

    if (text && !parse(text, &general)) {
        complain(variable, text, wanted, consequence);
        general = refuse;
    }
    for (int device = 0; device < HAMI_DEVICES_MAX; device++) {
        snprintf(name, sizeof(name), "%s_%d", variable, device);
        text = own_limit(name);
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

static void keep_stricter_policy(hami_option_policy *policy)
{
    const char *text = in_file("GPU_CORE_UTILIZATION_POLICY");
    hami_option_policy given = text && !strcasecmp(text, "force")     ? HAMI_POLICY_FORCE
                               : text && !strcasecmp(text, "disable") ? HAMI_POLICY_DISABLE
                                                                      : HAMI_POLICY_DEFAULT;

    if (*policy == given || *policy == HAMI_POLICY_FORCE || given == HAMI_POLICY_DISABLE)
        return;
    complain_at(HAMI_LOG_WARNING, "GPU_CORE_UTILIZATION_POLICY is ignored: %s is stricter", hami_limits_path());
    *policy = given;
}

/* Undo what the environment must not change beside a limits file. */
static void obey_file(struct hami_options *options)
{
    const char *path = in_file("CUDA_DEVICE_MEMORY_SHARED_CACHE");

    if (options->is_disabled)
        complain_at(HAMI_LOG_WARNING, "CUDA_DISABLE_CONTROL is ignored: %s has limits", hami_limits_path());
    options->is_disabled = false;
    if (path && strcmp(path, options->region_path) != 0)
        complain_at(HAMI_LOG_WARNING, "CUDA_DEVICE_MEMORY_SHARED_CACHE is ignored: %s has %s", hami_limits_path(), path);
    if (path)
        options->region_path = path;
    keep_stricter_policy(&options->utilization_policy);
    if (granted->state == HAMI_LIMITS_UNUSABLE)
        complain_at(HAMI_LOG_ERROR, "%s cannot be used: %s: nothing can be allocated", hami_limits_path(), granted->problem);
}

void hami_options_parse(struct hami_options *options, const struct hami_limits_file *limits)
{
    granted = options->granted = limits;
#define OPTION(kind, variable, field, fallback, ...) parse_##kind(#variable, &options->field, fallback);
#include "options.def"
#undef OPTION
    if (granted->state != HAMI_LIMITS_MISSING)
        obey_file(options);
    else if (is_secure())
        options->is_disabled = true;
    if (is_secure())
        options->region_path = "";
}

static void parse_once(void)
{
    static struct hami_limits_file file;

    hami_limits_read(hami_limits_path(), &file);
    hami_options_parse(&parsed, &file);
    hami_log_set_level(parsed.log_level);
    for (int index = 0; index < complaint_count; index++)
        hami_log(complaints[index].level, "%s", complaints[index].text);
}

const struct hami_options *hami_options(void)
{
    pthread_once(&once, parse_once);
    return &parsed;
}
