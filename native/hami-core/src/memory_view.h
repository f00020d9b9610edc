/*
 * A device's memory as its container has it.
 *
 * total is the limit, or the card if that is smaller; used is the container's; available is what is left of the total, or of the card
 * if that is less. With CUDA_OVERSUBSCRIBE the card does not count. used + available <= total.
 */
#ifndef HAMI_MEMORY_VIEW_H
#define HAMI_MEMORY_VIEW_H

#include <stdbool.h>
#include <stdint.h>

struct hami_memory_view {
    uint64_t total, used, available;
};

/* The card's size as the container is told it. */
uint64_t hami_view_total(int device, uint64_t card_total);

/* Turn the card's numbers into the container's. False, with nothing changed, when the device has no limit. */
bool hami_view_memory(int device, struct hami_memory_view *view);

#endif
