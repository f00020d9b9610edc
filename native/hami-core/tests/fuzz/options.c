/*
 * Environments beside limits files: whatever they say, each option has a value of its range.
 *
 * An input is the variables, one a line, and behind an empty line the limits file. The source is included for its complaints, which
 * are stored once for a process.
 */
#include "fuzz.h"

#include "../../src/base/options.c"

enum { VARIABLES_MAX = 64 };

static char *const variables[] = {
#define OPTION(kind, variable, ...) #variable,
#include "options.def"
#undef OPTION
};

/* Return whether a name is one of ours, or one of ours for a device. */
static bool is_ours(const char *name)
{
    for (size_t index = 0; index < sizeof(variables) / sizeof(variables[0]); index++)
        if (strncmp(name, variables[index], strlen(variables[index])) == 0)
            return true;
    return false;
}

/* Set the variables in `text`, and return what follows them; their names are kept in `names`. */
static char *set_environment(char *text, const char *names[VARIABLES_MAX], int *count)
{
    char *line, *equals;

    while ((line = strsep(&text, "\n")) && *line) {
        equals = strchr(line, '=');
        if (!equals || equals == line || *count == VARIABLES_MAX)
            continue;
        *equals = '\0';
        if (is_ours(line) && setenv(line, equals + 1, 1) == 0)
            names[(*count)++] = line;
    }
    return text;
}

static void check(const struct hami_options *options, const struct hami_limits_file *file)
{
    for (int device = 0; device < HAMI_DEVICES_MAX; device++)
        PROMISE(options->sm_limit_percent[device] >= 1 && options->sm_limit_percent[device] <= 100);
    PROMISE(options->region_path && options->device_uuids && options->visible_devices);
    PROMISE(options->priority >= 0 && options->log_level >= 0 && options->kernel_interval_seconds >= 0);
    PROMISE(options->utilization_policy <= HAMI_POLICY_DISABLE);
    PROMISE(file->state == HAMI_LIMITS_MISSING || !options->is_disabled);
    for (int index = 0; index < complaint_count; index++)
        PROMISE(memchr(complaints[index].text, '\0', sizeof(complaints[index].text)));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct hami_limits_file file;
    struct hami_options options;
    const char *names[VARIABLES_MAX];
    char path[64] = "/does/not/exist", *text = malloc(size + 1), *rest;
    int count = 0;

    memcpy(text, data, size);
    text[size] = '\0';
    rest = set_environment(text, names, &count);
    if (rest)
        snprintf(path, sizeof(path), "/proc/self/fd/%d", file_of(rest, size - (size_t)(rest - text)));
    hami_limits_read(path, &file);
    complaint_count = 0;
    hami_options_parse(&options, &file);
    check(&options, &file);
    while (count)
        unsetenv(names[--count]);
    free(text);
    return 0;
}
