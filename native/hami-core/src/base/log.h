/*
 * Messages on stderr, up to the level that is wanted.
 *
 * The words are HAMi's, so that what people grep for still works. Each message is one write(2); after 100 of them the process is
 * told once that the rest are left out. Safe in any thread; keeps errno; allocates nothing.
 */
#ifndef HAMI_LOG_H
#define HAMI_LOG_H

enum hami_log_level { HAMI_LOG_ERROR = 1, HAMI_LOG_WARNING = 2, HAMI_LOG_DECISION = 3, HAMI_LOG_EVERYTHING = 4 };

/* Print messages of this level and below; 0 prints nothing. Errors only until it is called. */
void hami_log_set_level(int level);

/* Print a message if its level is wanted. */
void hami_log(enum hami_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
