/*
 * Do something that may never return in a child, and give up on it after a time.
 *
 * A call of a hung driver cannot be interrupted, and its process not be killed: it sleeps in the kernel. So the hook neither waits
 * for such a child nor lets it hold a file that a container runtime reads to its end.
 */
#ifndef HAMI_LIMIT_HOOK_PATIENCE_H
#define HAMI_LIMIT_HOOK_PATIENCE_H

#include <stdbool.h>

/* Do something. Returns false if it failed, after the reason was written. */
typedef bool hami_work(const void *argument);

/*
 * Do `work` within some seconds. Returns whether it succeeded. If it takes longer, the child is killed, and a sentence says in which
 * step it was.
 */
bool hami_patience(hami_work *work, const void *argument, unsigned seconds);

/* Say what `work` is about to do; the text must be a constant. Only in `work`. */
void hami_patience_step(const char *step);

#endif
