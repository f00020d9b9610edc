/*
 * The functions of forward_driver.c that forward_program.c calls.
 */
#ifndef FORWARD_H
#define FORWARD_H

struct big {
    long numbers[8];
};

double cuDeviceGetTexture1DLinearMaxWidth(int a, double b, long c, float d, int e, double f, long g, double h, int i, double j,
                                          int k, double l, int m, double n, int o, double p, double q, double r);
int cuFlushGPUDirectRDMAWrites(int count, ...);
struct big cuDeviceGetP2PAttribute(long first);

/* Forwards that forward_driver.c lacks, and one of NVML, which is missing completely. */
int cuMemcpyWithAttributesAsync(void);
int nvmlUnitGetCount(unsigned int *count);

#endif
