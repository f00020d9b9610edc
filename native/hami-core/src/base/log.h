/*
 * Messages on stderr, up to the chosen level.
 *
 * The prefix is HAMi's, so that existing searches of logs still match. Each message is one write(2). After 100 messages the process
 * prints once that it omits the rest. Safe in any thread; keeps errno; allocates nothing.
 */
#ifndef HAMI_LOG_H
#define HAMI_LOG_H

enum hami_log_level { HAMI_LOG_ERROR = 1, HAMI_LOG_WARNING = 2, HAMI_LOG_DECISION = 3, HAMI_LOG_EVERYTHING = 4 };

/* Print messages up to this level; 0 prints nothing. Until the first call only errors are printed. */
void hami_log_set_level(int level);

/* Print a message if its level is enabled. */
void hami_log(enum hami_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
