/*
 * This process as a client of MPS, if it is one.
 *
 * Everything here may be called by a process that is none: it has all multiprocessors and no lasting error.
 */
#ifndef FAKE_MPS_H
#define FAKE_MPS_H

#include "cuda/fake.h"
#include "time/schedule.h"

/* Errors that the library under test does not use. */
#define CUDA_ERROR_DEVICE_UNAVAILABLE ((CUresult)46)
#define CUDA_ERROR_ILLEGAL_ADDRESS ((CUresult)700)
#define CUDA_ERROR_MPS_CONNECTION_FAILED ((CUresult)805)
#define CUDA_ERROR_MPS_RPC_FAILURE ((CUresult)806)
#define CUDA_ERROR_MPS_SERVER_NOT_READY ((CUresult)807)
#define CUDA_ERROR_MPS_MAX_CLIENTS_REACHED ((CUresult)808)
#define CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED ((CUresult)809)
#define CUDA_ERROR_MPS_CLIENT_TERMINATED ((CUresult)810)

/*
 * Become a client, in cuInit. Waits while the server starts, and for ever if the server hangs. Returns the daemon's error if it refuses
 * this process, and CUDA_SUCCESS also if there is no daemon.
 */
CUresult fake_mps_attach(void);

/* Whether the server may use a device. */
bool fake_mps_has_device(const char *uuid);

/* Tell the daemon of a new context on a device, which it may refuse, and of its end. */
CUresult fake_mps_open(const char *uuid);
void fake_mps_close(const char *uuid);

/* Return the error that every call returns since the server ended, a fault hit the GPU, or the client was terminated. */
CUresult fake_mps_check(void);

/* Return this client for the schedule; its number is 0 if the process is none. */
struct schedule_client fake_mps_client(void);

/* Return how many multiprocessors this process has of each device. */
unsigned int fake_mps_multiprocessors(void);

/* Apply the pinned memory limits of the namespace and of CUDA_MPS_PINNED_DEVICE_MEM_LIMIT to the devices that this process sees. */
void fake_mps_pin(const int *physical, int count);

#endif
