/*
 * The contexts of this process.
 */
#ifndef HAMI_CONTEXT_H
#define HAMI_CONTEXT_H

/* Forget the counts of retained primary contexts, in a forked child. */
void hami_contexts_forget(void);

#endif
