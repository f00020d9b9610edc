#include "hardware/cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/variables.h"

enum { FILE_BYTES_MAX = 8192 };

void cgroup_root_folder(char folder[PATH_MAX])
{
    const char *stand_in = variable("FAKE_DRIVER_CGROUP_ROOT");

    snprintf(folder, PATH_MAX, "%s", stand_in && stand_in[0] ? stand_in : "/sys/fs/cgroup");
}

static bool path_of(const char *folder, const char *name, char path[PATH_MAX])
{
    return snprintf(path, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_MAX];

    return path_of(folder, name, path) && access(path, F_OK) == 0;
}

/* Read a small file. Returns false if there is none. */
static bool read_file(const char *folder, const char *name, char text[FILE_BYTES_MAX])
{
    char path[PATH_MAX];
    int file = path_of(folder, name, path) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t count = file < 0 ? -1 : read(file, text, FILE_BYTES_MAX - 1);

    if (file >= 0)
        close(file);
    text[count > 0 ? count : 0] = '\0';
    return count >= 0;
}

static bool is_cgroup(const char *folder)
{
    return has_file(folder, "cgroup.controllers");
}

bool cgroup_is_supported(void)
{
    char root[PATH_MAX];

    cgroup_root_folder(root);
    return is_cgroup(root);
}

bool cgroup_is_root(const char *folder)
{
    return !has_file(folder, "cgroup.type");
}

bool cgroup_go_up(char folder[PATH_MAX])
{
    char *slash = strrchr(folder, '/');

    if (slash)
        *slash = '\0';
    return slash && is_cgroup(folder);
}

/* Whether a word is in a file of words. One that was written to enable a controller begins with `+`. */
static bool has_word(const char *folder, const char *name, const char *wanted)
{
    char text[FILE_BYTES_MAX], *rest = text, *word;

    if (!read_file(folder, name, text))
        return false;
    while ((word = strtok_r(rest, " \n", &rest)) != NULL)
        if (strcmp(word + (*word == '+'), wanted) == 0)
            return true;
    return false;
}

/* Whether a controller was enabled in the cgroup above a folder. */
static bool is_enabled_above(const char *folder, const char *controller)
{
    char above[PATH_MAX];

    snprintf(above, sizeof(above), "%s", folder);
    return cgroup_go_up(above) && has_word(above, "cgroup.subtree_control", controller);
}

/* Make an empty file that every process of the node may change, as the kernel does in the context of each. */
static void make_file(const char *folder, const char *name)
{
    char path[PATH_MAX];
    int file = path_of(folder, name, path) ? open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0666) : -1;

    if (file < 0)
        return;
    fchmod(file, 0666);
    close(file);
}

/* A folder that somebody made in a stand-in is a cgroup, whose files the kernel would have made. */
static void complete(const char *folder)
{
    char above[PATH_MAX];

    snprintf(above, sizeof(above), "%s", folder);
    if (access(folder, F_OK) != 0 || is_cgroup(folder) || !cgroup_go_up(above))
        return;
    make_file(folder, "cgroup.type");
    make_file(folder, "cgroup.subtree_control");
    make_file(folder, "cgroup.controllers");
}

/* The inode number of a cgroup is never reused. That of an ordinary folder may be, so its time of birth is added. */
uint64_t cgroup_of_folder(const char *path)
{
    struct statx found;

    complete(path);
    if (path[0] != '/' || !is_cgroup(path) || statx(AT_FDCWD, path, 0, STATX_INO | STATX_BTIME, &found) != 0)
        return 0;
    if (!(found.stx_mask & STATX_BTIME))
        return found.stx_ino;
    return found.stx_ino ^ ((uint64_t)found.stx_btime.tv_sec * 1000000000u + found.stx_btime.tv_nsec) << 20;
}

/* Write the path that the kernel shows in `0::PATH`. */
static void read_own_path(char path[PATH_MAX])
{
    const char *stand_in = variable("FAKE_DRIVER_CGROUP");
    char line[PATH_MAX];
    FILE *file = stand_in ? NULL : fopen("/proc/self/cgroup", "re");

    snprintf(path, PATH_MAX, "%s", stand_in ? stand_in : "/");
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0)
            snprintf(path, PATH_MAX, "%s", line + 3);
    }
    if (file)
        fclose(file);
}

void cgroup_own_folder(char folder[PATH_MAX])
{
    char path[PATH_MAX];
    size_t length;

    read_own_path(path);
    cgroup_root_folder(folder);
    length = strlen(folder);
    if (strcmp(path, "/") != 0)
        snprintf(folder + length, PATH_MAX - length, "%s", path);
}

bool cgroup_has(const char *folder, const char *controller)
{
    return has_word(folder, "cgroup.controllers", controller) || is_enabled_above(folder, controller);
}

bool cgroup_has_dmem(const char *folder)
{
    if (cgroup_is_root(folder))
        return false;
    if (has_file(folder, "dmem.max"))
        return true;
    if (!is_enabled_above(folder, "dmem"))
        return false;
    make_file(folder, "dmem.min");
    make_file(folder, "dmem.max");
    return has_file(folder, "dmem.max");
}

/* Return the line of a region, or NULL. */
static char *find_line(char *text, const char *region)
{
    size_t length = strlen(region);

    for (char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, region, length) == 0 && line[length] == ' ')
            return line;
    return NULL;
}

uint64_t cgroup_dmem_read(const char *folder, const char *name, const char *region, uint64_t otherwise)
{
    char text[FILE_BYTES_MAX];
    const char *line = read_file(folder, name, text) ? find_line(text, region) : NULL;

    if (!line)
        return otherwise;
    line += strlen(region) + 1;
    return strncmp(line, "max", 3) == 0 ? UINT64_MAX : strtoull(line, NULL, 10);
}

bool cgroup_dmem_write(const char *folder, const char *name, const char *region, uint64_t value)
{
    char path[PATH_MAX], text[FILE_BYTES_MAX], *line;
    FILE *file;

    if (!read_file(folder, name, text) || !path_of(folder, name, path))
        return false;
    line = find_line(text, region);
    file = fopen(path, "we");
    if (!file)
        return false;
    if (line) {
        fprintf(file, "%.*s", (int)(line - text), text);
        line += strcspn(line, "\n");
    }
    fprintf(file, "%s", line ? line + (*line == '\n') : text);
    if (value == UINT64_MAX)
        fprintf(file, "%s max\n", region);
    else
        fprintf(file, "%s %llu\n", region, (unsigned long long)value);
    return fclose(file) == 0;
}
