#include "hardware/cgroup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver/variables.h"

static const char *root(void)
{
    const char *folder = variable("FAKE_DRIVER_CGROUP_ROOT");

    return folder && folder[0] ? folder : "/sys/fs/cgroup";
}

static bool is_cgroup(const char *path)
{
    char file[PATH_MAX];

    return snprintf(file, sizeof(file), "%s/cgroup.controllers", path) < (int)sizeof(file) && access(file, F_OK) == 0;
}

bool cgroup_is_supported(void)
{
    return is_cgroup(root());
}

/* The inode number of a cgroup is never reused. That of an ordinary folder may be, so its time of birth is added. */
uint64_t cgroup_of_folder(const char *path)
{
    struct statx found;

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

void cgroup_of_process(uint64_t numbers[CGROUP_DEPTH_MAX])
{
    char own[PATH_MAX], folder[2 * PATH_MAX];
    size_t above;

    memset(numbers, 0, CGROUP_DEPTH_MAX * sizeof(numbers[0]));
    if (!cgroup_is_supported())
        return;
    read_own_path(own);
    above = strlen(root());
    snprintf(folder, sizeof(folder), "%s%s", root(), strcmp(own, "/") == 0 ? "" : own);
    for (int depth = 0; depth < CGROUP_DEPTH_MAX; depth++) {
        numbers[depth] = cgroup_of_folder(folder);
        if (!numbers[depth] || strlen(folder) <= above)
            return;
        *strrchr(folder, '/') = '\0';
    }
}
