/*
 * Let the driver limit a container's device memory: an OCI hook of the kind `createRuntime`.
 *
 *     hami-limit-hook [--driver-root FOLDER] [--proc FOLDER] [--cgroup FOLDER] [--timeout SECONDS] UUID=BYTES|max...
 *
 * A container runtime runs it on the host, before the container's first instruction, with the container's state on stdin. Each
 * failure ends it with status 1 and one sentence, so that the runtime does not start the container.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cgroup.h"
#include "driver.h"
#include "message.h"
#include "patience.h"
#include "state.h"

/* A longer one is no device's. */
enum { UUID_BYTES_MAX = 95, DEVICES_MAX = 64, TIMEOUT_SECONDS_MAX = 3600 };

struct arguments {
    const char *driver_root, *proc, *cgroup, *timeout;
    unsigned timeout_seconds;
    int count;
    struct hami_limit limits[DEVICES_MAX];
};

/* Read an argument UUID=BYTES or UUID=max, which it cuts behind the UUID. The largest number is the word's alone. */
static bool read_limit(char *argument, struct hami_limit *limit)
{
    char *digit = strchr(argument, '=');

    if (!digit || digit == argument || digit - argument > UUID_BYTES_MAX || !digit[1])
        return false;
    limit->uuid = argument;
    limit->bytes = 0;
    if (strcmp(digit, "=max") == 0) {
        limit->bytes = HAMI_NO_LIMIT;
        *digit = '\0';
        return true;
    }
    for (char *next = digit + 1; *next; next++)
        if (*next < '0' || *next > '9' || __builtin_mul_overflow(limit->bytes, 10, &limit->bytes) ||
            __builtin_add_overflow(limit->bytes, (unsigned long long)(*next - '0'), &limit->bytes))
            return false;
    if (!limit->bytes || limit->bytes == HAMI_NO_LIMIT)
        return false;
    *digit = '\0';
    return true;
}

static const char **option(struct arguments *arguments, const char *name)
{
    if (strcmp(name, "--driver-root") == 0)
        return &arguments->driver_root;
    if (strcmp(name, "--proc") == 0)
        return &arguments->proc;
    if (strcmp(name, "--timeout") == 0)
        return &arguments->timeout;
    return strcmp(name, "--cgroup") == 0 ? &arguments->cgroup : NULL;
}

static bool read_timeout(const char *text, unsigned *seconds)
{
    *seconds = 0;
    for (const char *next = text; *next; next++) {
        *seconds = *seconds * 10 + (unsigned)(*next - '0');
        if (*next < '0' || *next > '9' || *seconds > TIMEOUT_SECONDS_MAX)
            return hami_fail("--timeout %s: it must be 1 to %d seconds", text, TIMEOUT_SECONDS_MAX);
    }
    return *seconds > 0 || hami_fail("--timeout %s: it must be 1 to %d seconds", text, TIMEOUT_SECONDS_MAX);
}

static bool read_arguments(int count, char **given, struct arguments *arguments)
{
    for (int index = 1; index < count; index++) {
        const char **value = option(arguments, given[index]);

        if (value && ++index == count)
            return hami_fail("%s has no value", given[index - 1]);
        if (value) {
            *value = given[index];
            continue;
        }
        if (arguments->count == DEVICES_MAX)
            return hami_fail("argument %s: no more than %d devices can be limited", given[index], DEVICES_MAX);
        if (!read_limit(given[index], &arguments->limits[arguments->count]))
            return hami_fail("argument %s: a limit is a device's UUID=BYTES, with 1 to 2^64-2 bytes, or UUID=max", given[index]);
        arguments->count++;
    }
    if (!read_timeout(arguments->timeout, &arguments->timeout_seconds))
        return false;
    return arguments->count > 0 || hami_fail("no device: give a device's UUID=BYTES for each limit");
}

/* Return how many bytes of stdin are in `text`, one more than allowed at most; -1 if it cannot be read. */
static ssize_t read_stdin(char *text)
{
    size_t length = 0;
    ssize_t count;

    while (length <= HAMI_STATE_BYTES_MAX) {
        count = read(STDIN_FILENO, text + length, HAMI_STATE_BYTES_MAX + 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    return (ssize_t)length;
}

static bool read_pid(int *pid)
{
    static char text[HAMI_STATE_BYTES_MAX + 1];
    ssize_t length = read_stdin(text);
    const char *problem;

    if (length < 0)
        return hami_fail("the container's state on stdin: %s", strerror(errno));
    if (length > HAMI_STATE_BYTES_MAX)
        return hami_fail("the container's state on stdin: it has more than %d bytes", HAMI_STATE_BYTES_MAX);
    problem = hami_state_pid(text, (size_t)length, pid);
    return !problem || hami_fail("the container's state on stdin: %s; it must be that of a runtime, with the pid", problem);
}

struct work {
    const struct arguments *arguments;
    const char *folder;
};

static bool limit(const void *argument)
{
    const struct work *work = argument;

    return hami_driver_limit(work->arguments->driver_root, work->folder, work->arguments->limits, work->arguments->count);
}

int main(int count, char **given)
{
    struct arguments arguments = {.driver_root = "/", .proc = "/proc", .cgroup = "/sys/fs/cgroup", .timeout = "20"};
    char folder[PATH_MAX];
    const struct work work = {&arguments, folder};
    int pid;

    return read_arguments(count, given, &arguments) && read_pid(&pid) &&
                   hami_cgroup_folder(pid, arguments.proc, arguments.cgroup, folder) &&
                   hami_cgroup_enable_accounting(arguments.cgroup, folder) && hami_patience(limit, &work, arguments.timeout_seconds)
               ? 0
               : 1;
}
