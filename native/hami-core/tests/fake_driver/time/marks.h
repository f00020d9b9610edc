/*
 * Marks that all processes of the node see: points on contexts' clocks. Interprocess events are such marks.
 *
 * Owns the file `marks` in FAKE_DRIVER_DIR. A mark is reached until it is moved, and when the process that moved it last has ended.
 */
#ifndef FAKE_MARKS_H
#define FAKE_MARKS_H

#include <stdbool.h>
#include <stdint.h>

enum { MARKS_MAX = 4096 };

/* Make a mark; -1 if there are too many. It is never reused. */
int mark_create(void);

/* Whether a mark was made by any process. */
bool mark_exists(int mark);

/* Move a mark behind work whose end is unknown. */
void mark_hold(int mark);

/* Move a mark to a time of a context of this process. The caller holds the lock of the device. */
void mark_place(int mark, int device, int context, uint64_t at);

/* Whether a mark is reached. Takes the lock of its device. */
bool mark_is_reached(int mark);

#endif
