/*
 * The contexts of this process: nothing is asked of them from outside but to forget them.
 */
#ifndef HAMI_CONTEXT_H
#define HAMI_CONTEXT_H

/* Forget how often primary contexts were retained, in a forked child. */
void hami_contexts_forget(void);

#endif
