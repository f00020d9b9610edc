/*
 * The node's driver: whether it is loaded, its version, and whether this process still has it.
 *
 * Owns the meaning of the conditions of `driver`. A library has the version in its file name (libnvidia-ml.so.570.124.06); without
 * one, the driver's version at the time it was loaded. A process whose driver was unloaded has lost it for good, also when a driver
 * comes back: it must close it and open the new one.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdbool.h>
#include <stddef.h>

enum driver_state { DRIVER_READY, DRIVER_UNLOADED, DRIVER_OF_OTHER_VERSION };

/* Say whether this library can open the driver now. */
enum driver_state driver_state(void);

/* Write the version of the loaded driver, or of this library. */
void driver_version(char *text, size_t size);
const char *driver_library_version(void);

/*
 * Open the driver for a library, `nvml` or `cuda`: the process becomes one of its clients (clients.h). Returns the state, in which
 * only DRIVER_READY opened it. driver_count() notes how often the library is initialised.
 */
enum driver_state driver_open(const char *library);
void driver_count(int initialisations);
void driver_close(void);

/* Whether another process, or another library of this process, holds the driver. */
bool driver_has_other_clients(void);

/* Whether the driver that this library opened was unloaded since. */
bool driver_is_gone(void);

#endif
