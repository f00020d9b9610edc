#include "driver/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "driver/clients.h"
#include "driver/conditions.h"

#define VERSION "570.124.06"

static char library_version[64];
static const char *library;
static int client = -1;
static pid_t client_pid;
static int64_t opened_load;

static int64_t load(void)
{
    return conditions_number("driver", "loads", 1);
}

static bool is_unloaded(void)
{
    return conditions_find("driver", "unloaded", NULL) != NULL;
}

void driver_version(char *text, size_t size)
{
    const struct condition *version = conditions_find("driver", "version", NULL);

    snprintf(text, size, "%s", version ? version->value[0] : VERSION);
}

const char *driver_library_version(void)
{
    return library_version;
}

/* The version is what follows `.so.` in the library's file, links resolved, if that has a dot. */
__attribute__((constructor)) static void find_library_version(void)
{
    Dl_info self;
    char path[PATH_MAX];
    const char *suffix = NULL;

    if (dladdr(&library_version, &self) && realpath(self.dli_fname, path))
        suffix = strstr(strrchr(path, '/'), ".so.");
    if (suffix && strchr(suffix + 4, '.'))
        snprintf(library_version, sizeof(library_version), "%s", suffix + 4);
    else
        driver_version(library_version, sizeof(library_version));
}

enum driver_state driver_state(void)
{
    char version[64];

    if (is_unloaded())
        return DRIVER_UNLOADED;
    driver_version(version, sizeof(version));
    return strcmp(version, library_version) == 0 ? DRIVER_READY : DRIVER_OF_OTHER_VERSION;
}

enum driver_state driver_open(const char *name)
{
    int lock = clients_lock();
    enum driver_state state = driver_state();

    if (state == DRIVER_READY) {
        library = name;
        opened_load = load();
        client = clients_enter(lock, name);
        client_pid = getpid();
    }
    clients_unlock(lock);
    return state;
}

void driver_count(int initialisations)
{
    if (client_pid == getpid())
        clients_note(client, library, initialisations);
}

/* The entry of a forked child is its parent's. */
void driver_close(void)
{
    if (client_pid == getpid())
        clients_leave(client);
    else if (client >= 0)
        close(client);
    client = -1;
}

bool driver_has_other_clients(void)
{
    return clients_others(client);
}

bool driver_is_gone(void)
{
    return conditions_version() && (is_unloaded() || load() != opened_load);
}
