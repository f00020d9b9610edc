#include "liveness.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The inode of the initial pid namespace, fixed by Linux (PROC_PID_INIT_INO in include/linux/proc_ns.h). */
#define INITIAL_PID_NAMESPACE 0xeffffffcu

enum { STATE_FIELD = 3, THREADS_FIELD = 20, START_FIELD = 22 };

/* Find a numbered field of /proc/<pid>/stat; `state` points to field 3. NULL if there is no such field. */
static const char *field_of(const char *state, int wanted)
{
    for (int number = STATE_FIELD; state && number < wanted; number++) {
        state = strchr(state, ' ');
        state = state ? state + 1 : NULL;
    }
    return state;
}

static uint64_t unknown_unless_gone(int32_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH ? 0 : HAMI_START_UNKNOWN;
}

/* Read the start time of a process from its file in /proc. */
static uint64_t read_start(const char *path, int32_t pid)
{
    char text[1024];
    ssize_t length;
    const char *state, *threads, *start;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return unknown_unless_gone(pid);
    length = read(file, text, sizeof(text) - 1);
    close(file);
    if (length <= 0)
        return unknown_unless_gone(pid);
    text[length] = '\0';
    /* The name, field 2, may contain anything. It ends at the last parenthesis. */
    state = strrchr(text, ')');
    state = state && state[1] == ' ' ? state + 2 : NULL;
    threads = field_of(state, THREADS_FIELD);
    start = field_of(state, START_FIELD);
    if (!start || (strchr("ZXx", *state) && strtol(threads, NULL, 10) <= 1))
        return 0;
    return strtoull(start, NULL, 10);
}

uint64_t hami_start_ticks(int32_t pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    return read_start(path, pid);
}

uint64_t hami_own_start_ticks(void)
{
    return read_start("/proc/self/stat", (int32_t)getpid());
}

bool hami_pid_is_host_pid(void)
{
    struct stat namespace;

    return stat("/proc/self/ns/pid", &namespace) == 0 && namespace.st_ino == INITIAL_PID_NAMESPACE;
}
