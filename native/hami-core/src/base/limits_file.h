/*
 * The limits file: what the device plugin granted to this container, in a read-only folder beside the library.
 *
 *     hami-limits 1
 *     GPU-8f2c1d7e-… 8589934592 30
 *     CUDA_DEVICE_MEMORY_SHARED_CACHE=/usr/local/vgpu/6f0e….cache
 *
 * The first line is the version. A line of three fields is a device: UUID, bytes of memory (0: no limit), percent of time (100: no
 * limit). The other lines are the variables that the plugin also set in the container's environment. Every line ends with LF. The
 * file is replaced by a rename, so a reader sees the old one or the new one.
 * Any content is safe: a file of another form is HAMI_LIMITS_UNUSABLE. Locks: none. Fork: no state.
 */
#ifndef HAMI_LIMITS_FILE_H
#define HAMI_LIMITS_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "hami/region.h"

enum { HAMI_LIMITS_BYTES_MAX = 8192 };

/* A missing file means a plugin that makes none, such as HAMi's. */
enum hami_limits_state { HAMI_LIMITS_MISSING, HAMI_LIMITS_UNUSABLE, HAMI_LIMITS_READ };

struct hami_limits_device {
    char uuid[HAMI_UUID_BYTES];
    uint64_t memory_bytes, core_percent;
};

struct hami_limits_file {
    enum hami_limits_state state;
    char problem[80]; /* why the file is unusable */
    struct stat identity; /* zero if it could not be opened */
    int devices;
    struct hami_limits_device device[HAMI_DEVICES_MAX];
    char text[HAMI_LIMITS_BYTES_MAX + 1]; /* the lines, each ended by NUL instead of LF, and an empty one */
};

/* Return the file's path: `limits/limits` in the library's own folder. Empty if that is too long. */
const char *hami_limits_path(void);

/* Read the file at `path`. */
void hami_limits_read(const char *path, struct hami_limits_file *file);

/* Whether the file at `path` is another than `read`. False if it has gone: what was read still holds. */
bool hami_limits_is_replaced(const char *path, const struct stat *read);

/* Return the value of a variable in the file, or NULL. It lives as long as `file`. */
const char *hami_limits_setting(const struct hami_limits_file *file, const char *variable);

/* Return what the file grants of a device, or NULL if it does not name it. */
const struct hami_limits_device *hami_limits_of(const struct hami_limits_file *file, const char *uuid);

#endif
