/*
 * Wait for a line, call cuInit and print how many milliseconds it took.
 */
#include <stdio.h>
#include <time.h>

#include "hami/cuda_abi.h"

int main(void)
{
    struct timespec began, ended;

    getchar();
    clock_gettime(CLOCK_MONOTONIC, &began);
    if (cuInit(0) != CUDA_SUCCESS)
        return 1;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.3f\n", (double)(ended.tv_sec - began.tv_sec) * 1e3 + (double)(ended.tv_nsec - began.tv_nsec) / 1e6);
    return 0;
}
