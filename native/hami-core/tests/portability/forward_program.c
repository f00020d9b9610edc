/*
 * Call forwards of unusual types, each twice, and some that the driver lacks. Prints one line for each.
 */
#include <stdio.h>

#include "forward.h"

int cuMemcpyWithAttributesAsync(void) __attribute__((weak));
int nvmlUnitGetCount(unsigned int *count) __attribute__((weak));

int main(void)
{
    for (int round = 0; round < 2; round++) {
        struct big big = cuDeviceGetP2PAttribute(40);

        printf("%.1f\n", cuDeviceGetTexture1DLinearMaxWidth(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18));
        printf("%d\n", cuFlushGPUDirectRDMAWrites(10, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.));
        printf("%ld %ld\n", big.numbers[0], big.numbers[7]);
    }
    printf("%d\n", cuMemcpyWithAttributesAsync ? cuMemcpyWithAttributesAsync() : -1);
    printf("%d\n", nvmlUnitGetCount ? nvmlUnitGetCount(NULL) : -1);
    return 0;
}
