/*
 * The checks of unit tests. CHECK prints what does not hold and continues; main() ends with `return check_failures()`.
 */
#ifndef HAMI_CHECK_H
#define HAMI_CHECK_H

#include <stdio.h>

static int check_count, check_failed;

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        check_count++;                                                                    \
        if (!(condition)) {                                                               \
            check_failed++;                                                               \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
        }                                                                                 \
    } while (0)

#define CHECK_EQUAL(expected, actual)                                                                          \
    do {                                                                                                       \
        long long expected_ = (long long)(expected), actual_ = (long long)(actual);                            \
                                                                                                               \
        check_count++;                                                                                         \
        if (expected_ != actual_) {                                                                            \
            check_failed++;                                                                                    \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #actual, actual_, expected_); \
        }                                                                                                      \
    } while (0)

static inline int check_failures(void)
{
    printf("%d checks, %d failed\n", check_count, check_failed);
    return check_failed ? 1 : 0;
}

#endif
