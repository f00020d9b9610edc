#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "message.h"

#define UNIFIED "0::"

/* Read the path that the kernel shows in `0::PATH`, without its end of line. The caller frees it; NULL if there is none. */
static char *read_path(const char *file_path)
{
    FILE *file = fopen(file_path, "re");
    char *line = NULL, *path = NULL;
    size_t size = 0;

    while (file && !path && getline(&line, &size, file) >= 0) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, UNIFIED, strlen(UNIFIED)) == 0)
            path = strdup(line + strlen(UNIFIED));
    }
    if (file)
        fclose(file);
    free(line);
    return path;
}

/* Whether the path is that of a cgroup below this process's own root of cgroups; one above it starts with `/..`. */
static bool is_below_root(const char *path)
{
    for (const char *slash = path; slash; slash = strchr(slash + 1, '/'))
        if (strncmp(slash, "/..", 3) == 0 && (!slash[3] || slash[3] == '/'))
            return false;
    return path[0] == '/' && path[1];
}

static bool is_cgroup(const char *folder)
{
    char file[PATH_MAX];

    return snprintf(file, sizeof(file), "%s/cgroup.controllers", folder) < (int)sizeof(file) && access(file, F_OK) == 0;
}

static bool write_folder(const char *path, const char *source, const char *root, char folder[PATH_MAX])
{
    if (!is_below_root(path))
        return hami_fail("%s: cgroup %s is not one of a container, which is below the root", source, path);
    if (snprintf(folder, PATH_MAX, "%s%s", root, path) >= PATH_MAX)
        return hami_fail("%s: cgroup %s is longer than a path can be", source, path);
    if (!is_cgroup(folder))
        return hami_fail("%s is not a cgroup of version 2, which memory limits of the driver need", folder);
    return true;
}

bool hami_cgroup_folder(int pid, const char *proc, const char *root, char folder[PATH_MAX])
{
    char source[PATH_MAX];
    char *path;
    bool is_found;

    snprintf(source, sizeof(source), "%s/%d/cgroup", proc, pid);
    if (access(source, R_OK) != 0)
        return hami_fail("%s: %s; the state must have the pid of a process that lives", source, strerror(errno));
    path = read_path(source);
    if (!path)
        return hami_fail("%s: the process has no cgroup of version 2, which memory limits of the driver need", source);
    is_found = write_folder(path, source, root, folder);
    free(path);
    return is_found;
}

/* Whether a cgroup's file of words has one. */
static bool has_word(const char *folder, const char *name, const char *wanted)
{
    char path[PATH_MAX], text[1024] = "", *rest = text, *word;
    FILE *file = snprintf(path, sizeof(path), "%s/%s", folder, name) < (int)sizeof(path) ? fopen(path, "re") : NULL;

    if (!file || !fgets(text, sizeof(text), file))
        text[0] = '\0';
    if (file)
        fclose(file);
    while ((word = strtok_r(rest, " \n", &rest)) != NULL)
        if (strcmp(word, wanted) == 0)
            return true;
    return false;
}

static bool enable(const char *folder, const char *controller)
{
    char path[PATH_MAX], words[16];
    int length = snprintf(words, sizeof(words), "+%s", controller);
    int file = snprintf(path, sizeof(path), "%s/cgroup.subtree_control", folder) < (int)sizeof(path)
                   ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC)
                   : -1;
    bool is_enabled = file >= 0 && write(file, words, (size_t)length) == length;
    int problem = errno;

    if (file >= 0)
        close(file);
    return is_enabled || hami_fail("%s/cgroup.subtree_control: the controller %s cannot be enabled for the container: %s; "
                                   "the driver limits memory by it, and the container runtime has to enable it, as runc does",
                                   folder, controller, strerror(problem));
}

bool hami_cgroup_enable_accounting(const char *root, const char *folder)
{
    static const char *const controllers[] = {"dmem", "misc"};
    char above[PATH_MAX];

    for (size_t index = 0; index < sizeof(controllers) / sizeof(controllers[0]); index++) {
        if (!has_word(root, "cgroup.controllers", controllers[index]))
            continue;
        for (size_t end = strlen(root); folder[end]; end += 1 + strcspn(folder + end + 1, "/")) {
            snprintf(above, sizeof(above), "%.*s", (int)end, folder);
            if (!has_word(above, "cgroup.subtree_control", controllers[index]) && !enable(above, controllers[index]))
                return false;
        }
    }
    return true;
}
