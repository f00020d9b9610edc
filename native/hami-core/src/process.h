/*
 * When this library comes to life in a process, and how it leaves.
 *
 * Nothing happens until a hooked function is called: no file, thread, handler or output. Then, once: the options are parsed, the region
 * is attached and, for a process that uses CUDA, a slot is claimed and the CUDA ordinals are matched to region devices by UUID.
 */
#ifndef HAMI_PROCESS_H
#define HAMI_PROCESS_H

#include <stdbool.h>

#include "hami/cuda_abi.h"

enum { HAMI_ORDINALS_MAX = 64 };

/* Attach the region if this process is under control. False: forward everything. Cheap after the first call. */
bool hami_process_attach(void);

/* The region index of a CUDA ordinal, or -1 when it is not known: then forward. Attaches and matches devices at the first call. */
int hami_process_device(CUdevice ordinal);

/* How many CUDA ordinals there are; 0 before the first call of hami_process_device(). */
int hami_process_ordinals(void);

/* The ordinal of the calling thread's current device and its region index, or -1. */
CUdevice hami_process_current_ordinal(void);
int hami_process_current_device(void);

/* The ordinal behind a stream handle and its region index, or -1. */
CUdevice hami_process_stream_ordinal(CUstream stream, bool is_per_thread);
int hami_process_stream_device(CUstream stream, bool is_per_thread);

#endif
