#include "message.h"

#include <stdarg.h>
#include <stdio.h>

bool hami_fail(const char *format, ...)
{
    va_list arguments;

    fputs("hami-limit-hook: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    return false;
}
