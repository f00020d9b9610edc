/*
 * Messages to people, on stderr, when LIBCUDA_LOG_LEVEL asks for them.
 *
 * The words are HAMi's, so that what people grep for still works. Each message is one write(2); after 100 of them the process is
 * told once that the rest are left out. Safe in any thread; keeps errno; allocates nothing.
 */
#ifndef HAMI_LOG_H
#define HAMI_LOG_H

enum hami_log_level { HAMI_LOG_ERROR = 1, HAMI_LOG_WARNING = 2, HAMI_LOG_DECISION = 3, HAMI_LOG_EVERYTHING = 4 };

/* Print if the level is asked for. `HAMI_LOG_ERROR` is printed unless the level is 0. */
void hami_log(enum hami_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
