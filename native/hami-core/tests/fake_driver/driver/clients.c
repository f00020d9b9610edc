#include "driver/clients.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/variables.h"

/* Return the path of an open file. */
static bool path_of(int client, char *path, size_t size)
{
    char link[32];
    ssize_t length;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", client);
    length = readlink(link, path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    return length > 0;
}

int clients_lock(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");
    char path[4096];
    int lock;

    if (!folder || !folder[0])
        return -1;
    snprintf(path, sizeof(path), "%s/clients", folder);
    if (mkdir(path, 0777) == 0)
        chmod(path, 0777);
    lock = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock >= 0)
        flock(lock, LOCK_EX);
    return lock;
}

/* A child that was forked meanwhile has the descriptor too, so closing it would not unlock. */
void clients_unlock(int lock)
{
    if (lock < 0)
        return;
    flock(lock, LOCK_UN);
    close(lock);
}

void clients_note(int client, const char *library, int initialisations)
{
    char command[64] = "", line[160];
    int length, file;

    if (client < 0)
        return;
    file = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
    if (file >= 0 && read(file, command, sizeof(command) - 1) < 0)
        command[0] = '\0';
    close(file);
    command[strcspn(command, "\n")] = '\0';
    length = snprintf(line, sizeof(line), "%d %s %d %-16s\n", (int)getpid(), library, initialisations, command);
    (void)!pwrite(client, line, (size_t)length, 0);
}

void clients_leave(int client)
{
    char path[4096];

    if (client < 0)
        return;
    if (path_of(client, path, sizeof(path)))
        unlink(path);
    close(client);
}

/* Whether the file of an entry is locked by another open file. */
static bool is_held(int folder, const char *name, const struct stat *own)
{
    int file = openat(folder, name, O_RDWR | O_CLOEXEC);
    struct stat found;
    bool is_held;

    if (file < 0)
        return false;
    is_held = fstat(file, &found) == 0 && found.st_ino != own->st_ino && flock(file, LOCK_EX | LOCK_NB) != 0;
    close(file);
    return is_held;
}

/* Return how many others hold the driver, and remove what dead processes left. The caller holds the lock. */
static int others(int lock, int client)
{
    DIR *folder = fdopendir(dup(lock));
    struct stat own = {0}, found;
    struct dirent *entry;
    int count = 0;

    if (client >= 0)
        fstat(client, &own);
    while (folder && (entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        if (is_held(lock, entry->d_name, &own))
            count++;
        else if (fstatat(lock, entry->d_name, &found, 0) == 0 && found.st_ino != own.st_ino)
            unlinkat(lock, entry->d_name, 0);
    }
    if (folder)
        closedir(folder);
    return count;
}

int clients_enter(int lock, const char *library)
{
    char path[4096];
    int client;

    if (lock < 0)
        return -1;
    others(lock, -1);
    snprintf(path, sizeof(path), "%s/clients/%s-%d-XXXXXX", variable("FAKE_DRIVER_DIR"), library, (int)getpid());
    client = mkostemp(path, O_CLOEXEC);
    if (client < 0)
        return -1;
    clients_note(client, library, 1);
    fchmod(client, 0666);
    flock(client, LOCK_EX);
    return client;
}

bool clients_others(int client)
{
    int lock = clients_lock();
    bool is_any = lock >= 0 && others(lock, client) > 0;

    clients_unlock(lock);
    return is_any;
}
