/*
 * The cost of a kind of launch is learned from few samples, and learned again when it changes.
 */
#include "kernel_cost.h"

#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

static struct hami_kernels kernels;
static int functions[20000];

static uint64_t key(int function)
{
    return hami_kernel_key(&functions[function], 0, 100, 256);
}

static void took(struct hami_kernel *kernel, uint64_t ns)
{
    hami_kernel_learn(kernel, &(struct hami_sample){ns, ns, ns});
}

static void one_sample_is_a_cost(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(0));

    CHECK_EQUAL(0, kernel->cost_ns);
    took(kernel, 1234);
    CHECK_EQUAL(1234, kernel->cost_ns);
    CHECK_EQUAL(1234, hami_kernel_find(&kernels, key(0))->cost_ns);
}

static void kernel_that_takes_no_time_is_known(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(1));

    took(kernel, 0);
    CHECK_EQUAL(1, kernel->cost_ns);
}

static void change_is_followed_within_some_samples(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(2));

    for (int sample = 0; sample < 100; sample++)
        took(kernel, 1000);
    for (int sample = 0; sample < 20; sample++)
        took(kernel, 10000);
    CHECK(kernel->cost_ns > 9000 && kernel->cost_ns <= 10000);
    for (int sample = 0; sample < 40; sample++)
        took(kernel, 1000);
    CHECK(kernel->cost_ns >= 1000 && kernel->cost_ns < 1100);
}

static void launch_that_still_runs_raises_the_cost_at_once(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(5));

    hami_kernel_outlast(kernel, 5000);
    CHECK_EQUAL(5000, kernel->cost_ns);
    hami_kernel_outlast(kernel, 4000);
    CHECK_EQUAL(5000, kernel->cost_ns);
    for (int sample = 0; sample < 40; sample++)
        took(kernel, 100);
    CHECK(kernel->cost_ns < 200);
}

static void mean_is_the_arithmetic_one(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(3));
    double sum = 0;

    for (int sample = 0; sample < 10000; sample++) {
        uint64_t length = sample % 10 ? 100000 : 300000;

        took(kernel, length);
        sum += (double)kernel->cost_ns;
    }
    CHECK(sum / 10000 > 117000 && sum / 10000 < 123000);
}

static void doubtful_sample_confirms_what_is_possible(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(4));

    took(kernel, 1000);
    for (int sample = 0; sample < 100; sample++)
        hami_kernel_learn(kernel, &(struct hami_sample){500, 3000, 9000});
    CHECK_EQUAL(1000, kernel->cost_ns);
    hami_kernel_learn(kernel, &(struct hami_sample){500, 600, 700});
    CHECK(kernel->cost_ns < 1000);
}

static void odd_launch_hardly_counts(void)
{
    struct hami_kernel *kernel = hami_kernel_find(&kernels, key(5));

    for (int sample = 0; sample < 20; sample++)
        took(kernel, 1000);
    took(kernel, 1000000);
    CHECK(kernel->cost_ns < 1500);
}

static void kinds_differ_by_function_device_block_and_order_of_the_grid(void)
{
    uint64_t plain = hami_kernel_key(functions, 0, 100, 256);

    CHECK(plain != hami_kernel_key(functions + 1, 0, 100, 256));
    CHECK(plain != hami_kernel_key(functions, 1, 100, 256));
    CHECK(plain != hami_kernel_key(functions, 0, 100, 128));
    CHECK(plain != hami_kernel_key(functions, 0, 200, 256));
    CHECK(plain == hami_kernel_key(functions, 0, 101, 256));
    CHECK(hami_kernel_key(NULL, 0, 0, 0) != 0);
}

static void full_table_forgets_and_goes_on(void)
{
    int known = 0;

    for (int function = 0; function < 20000; function++)
        took(hami_kernel_find(&kernels, key(function)), 5000);
    for (int function = 0; function < 20000; function++)
        known += hami_kernel_find(&kernels, key(function))->cost_ns == 5000;
    CHECK(known > 0);
    CHECK(hami_kernel_find(&kernels, key(77)) == hami_kernel_find(&kernels, key(77)));
}

int main(void)
{
    one_sample_is_a_cost();
    kernel_that_takes_no_time_is_known();
    change_is_followed_within_some_samples();
    launch_that_still_runs_raises_the_cost_at_once();
    mean_is_the_arithmetic_one();
    doubtful_sample_confirms_what_is_possible();
    odd_launch_hardly_counts();
    kinds_differ_by_function_device_block_and_order_of_the_grid();
    full_table_forgets_and_goes_on();
    return check_failures();
}
