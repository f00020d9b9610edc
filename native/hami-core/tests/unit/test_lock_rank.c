/*
 * The order of locks, as builds with HAMI_CHECK_LOCKS check it.
 */
#include "lock_rank.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static pthread_mutex_t low = PTHREAD_MUTEX_INITIALIZER, high = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

/* Whether a child process that runs the body is aborted. */
static bool is_aborted(void (*body)(void))
{
    pid_t child = fork();
    int status = 0;

    if (child == 0) {
        dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
        body();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void in_order(void)
{
    hami_lock(&low, HAMI_RANK_CHARGES);
    hami_lock(&high, HAMI_RANK_POOLS);
    hami_unlock(&low, HAMI_RANK_CHARGES);
    hami_unlock(&high, HAMI_RANK_POOLS);
    hami_lock(&low, HAMI_RANK_CHARGES);
}

static void out_of_order(void)
{
    hami_lock(&high, HAMI_RANK_POOLS);
    hami_lock(&low, HAMI_RANK_CHARGES);
}

static void one_of_the_same_rank(void)
{
    hami_lock(&low, HAMI_RANK_METER);
    hami_lock(&other, HAMI_RANK_METER);
}

static void after_a_try_of_the_same_rank(void)
{
    hami_lock(&low, HAMI_RANK_METER);
    if (!hami_try_lock(&other, HAMI_RANK_METER))
        return;
    hami_unlock(&low, HAMI_RANK_METER);
    hami_lock(&low, HAMI_RANK_METER);
}

static void try_out_of_order(void)
{
    hami_lock(&high, HAMI_RANK_POOLS);
    if (!hami_try_lock(&low, HAMI_RANK_CHARGES))
        abort();
}

static void forgotten_in_a_child(void)
{
    hami_lock(&high, HAMI_RANK_POOLS);
    hami_ranks_forget();
    hami_lock(&low, HAMI_RANK_CHARGES);
}

int main(void)
{
    CHECK(!is_aborted(in_order));
    CHECK(is_aborted(out_of_order));
    CHECK(is_aborted(one_of_the_same_rank));
    CHECK(is_aborted(after_a_try_of_the_same_rank));
    CHECK(!is_aborted(try_out_of_order));
    CHECK(!is_aborted(forgotten_in_a_child));
    return check_failures();
}
