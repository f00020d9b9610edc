#include "log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { MESSAGES_MAX = 100 };

static _Atomic int messages, level_wanted = HAMI_LOG_ERROR;

static const char *word(enum hami_log_level level)
{
    static const char *const words[] = {"ERROR", "ERROR", "Warn", "Info", "Debug"};

    return words[level];
}

void hami_log_set_level(int level)
{
    atomic_store_explicit(&level_wanted, level, memory_order_relaxed);
}

void hami_log(enum hami_log_level level, const char *format, ...)
{
    int saved_errno = errno;
    int number;
    char line[512];
    int length;
    va_list arguments;

    if ((int)level > atomic_load_explicit(&level_wanted, memory_order_relaxed))
        return;
    number = atomic_fetch_add(&messages, 1);
    if (number > MESSAGES_MAX)
        return;
    length = snprintf(line, sizeof(line), "[HAMI-core %s (%d)]: ", word(level), (int)getpid());
    if (number == MESSAGES_MAX) {
        length += snprintf(line + length, sizeof(line) - (size_t)length, "further messages of this process are omitted");
    } else {
        va_start(arguments, format);
        length += vsnprintf(line + length, sizeof(line) - (size_t)length, format, arguments);
        va_end(arguments);
    }
    if (length > (int)sizeof(line) - 2)
        length = (int)sizeof(line) - 2;
    line[length++] = '\n';
    (void)!write(STDERR_FILENO, line, (size_t)length);
    errno = saved_errno;
}
