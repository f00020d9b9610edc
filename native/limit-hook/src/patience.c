#include "patience.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "message.h"

/* A sentence, and the byte behind it that tells the end of the work. */
enum { SENTENCE_BYTES_MAX = 8192, SUCCEEDED = 1, FAILED = 2 };

/* Where the child is, in memory that it shares with its parent: a constant, at the same place in both. */
static const char *volatile *step;

void hami_patience_step(const char *name)
{
    *step = name;
}

static uint64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

/* The child: what it says goes into the pipe, and none of the hook's own files stays open in it. */
static void __attribute__((noreturn)) do_work(hami_work *work, const void *argument, int output, pid_t parent)
{
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    char end;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0 || dup2(nothing, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0 ||
        getppid() != parent)
        _exit(1);
    end = work(argument) ? SUCCEEDED : FAILED;
    if (write(STDERR_FILENO, &end, 1) != 1)
        _exit(1);
    _exit(0);
}

/*
 * Read what the child says until it has ended its work. Returns the last byte, and before it the sentence in `text`; 0 if the child
 * died, and -1 if the time is over.
 */
static int listen_to(int input, char text[SENTENCE_BYTES_MAX], uint64_t until_ms)
{
    struct pollfd ready = {.fd = input, .events = POLLIN};
    size_t length = 0;

    for (;;) {
        uint64_t now = now_ms();
        ssize_t count;

        if (now >= until_ms)
            return -1;
        if (poll(&ready, 1, (int)(until_ms - now)) <= 0)
            continue;
        count = read(input, text + length, SENTENCE_BYTES_MAX - 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return 0;
        length += (size_t)count;
        if (text[length - 1] == SUCCEEDED || text[length - 1] == FAILED) {
            int end = text[length - 1];

            text[length - 1] = '\0';
            return end;
        }
    }
}

static bool judge(int end, const char *text, unsigned seconds)
{
    if (end == -1)
        return hami_fail(
            "the driver did not return from %s within %u s, so the container does not start without its limit; a driver "
            "that hangs needs a reset of its devices, or a restart of the Node",
            *step, seconds);
    if (end == 0)
        return hami_fail("the driver ended the process in %s, so the container does not start without its limit", *step);
    fputs(text, stderr);
    return end == SUCCEEDED;
}

bool hami_patience(hami_work *work, const void *argument, unsigned seconds)
{
    static char text[SENTENCE_BYTES_MAX];
    uint64_t until_ms = now_ms() + seconds * 1000u;
    void *memory = mmap(NULL, sizeof(*step), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t parent = getpid(), child;
    int ends[2], end;

    if (memory == MAP_FAILED || pipe2(ends, O_CLOEXEC) != 0)
        return hami_fail("no memory or no pipe for the driver's answer: %s", strerror(errno));
    step = memory;
    *step = "its start";
    child = fork();
    if (child < 0)
        return hami_fail("no process to ask the driver: %s", strerror(errno));
    if (child == 0)
        do_work(work, argument, ends[1], parent);
    close(ends[1]);
    end = listen_to(ends[0], text, until_ms);
    if (end == -1)
        kill(child, SIGKILL);
    return judge(end, text, seconds);
}
