/*
 * Which requests for memory are in progress in all processes of a program, to judge those that are refused.
 *
 * A request announces the most that it can take, and a release the most that it can give back. A refusal is right only if at some
 * moment of the call what the driver had given, and all requests and releases in progress together, passed the limit. Every call
 * that begins or ends notes that sum for all others, so no moment is missed.
 */
#ifndef HAMI_REQUESTS_H
#define HAMI_REQUESTS_H

#include <stdbool.h>
#include <stdint.h>

/* Map what the processes share, before they are forked. */
void requests_prepare(void);

/* Forget all requests, between two programs. */
void requests_clear(void);

/* Announce a request of the calling thread, whose `number` no other thread has. Pair with request_end(). */
void request_begin(int number, int device, uint64_t most_bytes);

/* Withdraw it. Returns the most that was needed at one moment of it; UINT64_MAX if a process was being killed meanwhile. */
uint64_t request_end(int number);

/* Announce a release, which may concern every device; UINT64_MAX for all that this process has. Pair with release_end(). */
void release_begin(int number, int device, uint64_t most_bytes);
void release_end(int number);

/* Around the kill of a process until it is gone: its memory is given back, and may still be counted. Its requests are withdrawn. */
void requests_begin_kill(void);
void requests_end_kill(int first_number, int end_number);

#endif
