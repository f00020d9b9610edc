/*
 * How the GPUs of the node are connected: PCIe and NVLink.
 *
 * Owns the conditions `ancestor`, `nvlinks` and `nvlink-down`. Without them two GPUs of one NUMA node share that node, others only
 * the system, and no GPU has NVLinks.
 */
#ifndef FAKE_LINKS_H
#define FAKE_LINKS_H

#include <stdbool.h>

enum { HW_LINKS_MAX = 18 };

struct hw_link {
    int peer; /* the GPU at its other end, or -1 for a switch */
    bool is_up;
};

/* Return the nvmlGpuTopologyLevel_t of two GPUs. */
int hw_ancestor(int gpu, int other);

/* List the NVLinks of a GPU, with room for HW_LINKS_MAX, in the order in which the test connected them. Returns how many. */
unsigned int hw_links(int gpu, struct hw_link *links);

#endif
