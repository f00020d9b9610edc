/*
 * Which processes hold the driver: the folder `clients` in FAKE_DRIVER_DIR, for tests to read.
 *
 * A client is a file that its process holds locked (flock) until it closes the driver or ends, as a device file is open. Its line is
 * `<pid> <library> <initialisations> <command>`, with the pid that the process itself sees. A file that is not locked belongs to a
 * dead process. Fork: a child shares its parent's file and keeps it locked.
 */
#ifndef FAKE_CLIENTS_H
#define FAKE_CLIENTS_H

#include <stdbool.h>

/*
 * Lock the list against other openings, and against a test that unloads the driver. Returns a descriptor for clients_unlock(), or -1
 * without a folder.
 */
int clients_lock(void);
void clients_unlock(int lock);

/* Enter this process for a library, and remove what dead processes left. Returns a descriptor to hold, or -1 without a folder. */
int clients_enter(int lock, const char *library);

/* Note how often the library is initialised. */
void clients_note(int client, const char *library, int initialisations);

/* Remove the entry. */
void clients_leave(int client);

/* Return whether another process, or another library of this process, holds the driver. */
bool clients_others(int client);

#endif
