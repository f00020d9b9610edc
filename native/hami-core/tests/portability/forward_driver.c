/*
 * A libcuda.so.1 whose functions take and return what no CUDA function does: every register and the stack, by value and by
 * reference. Their names are those of forwards, whose arguments the library does not know.
 */
#include <stdarg.h>

#include "forward.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int cuInit(unsigned int flags);

int cuInit(unsigned int flags)
{
    return (int)flags;
}

EXPORT double cuDeviceGetTexture1DLinearMaxWidth(int a, double b, long c, float d, int e, double f, long g, double h, int i,
                                                 double j, int k, double l, int m, double n, int o, double p, double q, double r)
{
    return a + 2 * b + 3 * (double)c + 4 * (double)d + 5 * e + 6 * f + 7 * (double)g + 8 * h + 9 * i + 10 * j + 11 * k + 12 * l +
           13 * m + 14 * n + 15 * o + 16 * p + 17 * q + 18 * r;
}

EXPORT int cuFlushGPUDirectRDMAWrites(int count, ...)
{
    double sum = 0;
    va_list numbers;

    va_start(numbers, count);
    for (int index = 0; index < count; index++)
        sum += (index + 1) * va_arg(numbers, double);
    va_end(numbers);
    return (int)sum;
}

EXPORT struct big cuDeviceGetP2PAttribute(long first)
{
    struct big answer;

    for (int index = 0; index < 8; index++)
        answer.numbers[index] = first + index;
    return answer;
}
