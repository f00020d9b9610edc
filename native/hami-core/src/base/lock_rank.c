#include "lock_rank.h"

#ifdef HAMI_CHECK_LOCKS

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many locks of each rank the thread holds. */
static _Thread_local unsigned char held[HAMI_RANKS] __attribute__((tls_model("initial-exec")));

void hami_rank_check(enum hami_lock_rank rank)
{
    for (int higher = rank; higher < HAMI_RANKS; higher++) {
        if (!held[higher])
            continue;
        fprintf(stderr, "hami: a thread that holds a lock of rank %d waits for one of rank %d\n", higher, (int)rank);
        abort();
    }
}

void hami_rank_enter(enum hami_lock_rank rank)
{
    held[rank]++;
}

void hami_rank_leave(enum hami_lock_rank rank)
{
    held[rank]--;
}

void hami_ranks_forget(void)
{
    memset(held, 0, sizeof(held));
}

#endif
