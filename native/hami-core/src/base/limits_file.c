#include "limits_file.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "uuid.h"

#define VERSION_LINE "hami-limits 1"
#define FILE_NAME "limits/limits"

static char own_path[PATH_MAX];
static pthread_once_t path_once = PTHREAD_ONCE_INIT;

static void find_path(void)
{
    Dl_info info;
    const char *slash = dladdr((void *)find_path, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    int folder_length = slash ? (int)(slash - info.dli_fname) + 1 : 0;

    if (folder_length + sizeof(FILE_NAME) <= sizeof(own_path))
        snprintf(own_path, sizeof(own_path), "%.*s" FILE_NAME, folder_length, slash ? info.dli_fname : "");
}

const char *hami_limits_path(void)
{
    pthread_once(&path_once, find_path);
    return own_path;
}

static void refuse(struct hami_limits_file *file, const char *problem)
{
    file->state = HAMI_LIMITS_UNUSABLE;
    file->devices = 0;
    file->text[0] = file->text[1] = '\0';
    snprintf(file->problem, sizeof(file->problem), "%s", problem);
}

/* Read up to 20 decimal digits and `end`. Returns what follows, or NULL if that is not there or the number is too large. */
static const char *read_number(const char *text, char end, uint64_t *number)
{
    const char *digit = text;

    for (*number = 0; *digit >= '0' && *digit <= '9'; digit++)
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, (uint64_t)(*digit - '0'), number))
            return NULL;
    return digit > text && digit - text <= 20 && *digit == end ? digit + 1 : NULL;
}

static bool read_device(const char *line, struct hami_limits_device *device)
{
    size_t length = strcspn(line, " ");
    const char *rest;

    if (!length || length >= sizeof(device->uuid) || line[length] != ' ')
        return false;
    memset(device->uuid, 0, sizeof(device->uuid));
    memcpy(device->uuid, line, length);
    rest = read_number(line + length + 1, ' ', &device->memory_bytes);
    return rest && read_number(rest, '\0', &device->core_percent) && device->core_percent >= 1 && device->core_percent <= 100;
}

/* Read one line after the first. Returns what is wrong with it, or NULL. */
static const char *read_line(struct hami_limits_file *file, const char *line)
{
    struct hami_limits_device device;

    if (line[strcspn(line, " =")] == '=')
        return *line == '=' ? "a line has no variable" : NULL;
    if (!read_device(line, &device))
        return "a line is neither NAME=VALUE nor a UUID, bytes and percent";
    if (hami_limits_of(file, device.uuid))
        return "a device is listed twice";
    if (file->devices == HAMI_DEVICES_MAX)
        return "it lists more devices than the library can limit";
    file->device[file->devices++] = device;
    return NULL;
}

/* Read the lines of a text of `length` bytes, in place. */
static void read_text(struct hami_limits_file *file, size_t length)
{
    const char *problem = NULL;

    if (!length || file->text[length - 1] != '\n' || memchr(file->text, '\0', length)) {
        refuse(file, "it is not lines of text");
        return;
    }
    file->text[length] = '\0';
    for (size_t index = 0; index < length; index++)
        if (file->text[index] == '\n')
            file->text[index] = '\0';
    if (strcmp(file->text, VERSION_LINE) != 0)
        problem = "its first line is not " VERSION_LINE;
    for (char *line = file->text + strlen(file->text) + 1; !problem && line < file->text + length; line += strlen(line) + 1)
        problem = read_line(file, line);
    if (problem)
        refuse(file, problem);
    else
        file->state = HAMI_LIMITS_READ;
}

/* Return how many bytes are in `text`, at most one more than allowed; -1 if it cannot be read. */
static ssize_t read_all(int descriptor, char *text)
{
    size_t length = 0;
    ssize_t count;

    while (length <= HAMI_LIMITS_BYTES_MAX) {
        count = read(descriptor, text + length, HAMI_LIMITS_BYTES_MAX + 1 - length);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return -1;
        if (count == 0)
            break;
        length += (size_t)count;
    }
    return (ssize_t)length;
}

static void read_descriptor(int descriptor, struct hami_limits_file *file)
{
    ssize_t length;

    if (fstat(descriptor, &file->identity) != 0 || !S_ISREG(file->identity.st_mode)) {
        refuse(file, "it is not a file");
        return;
    }
    length = read_all(descriptor, file->text);
    if (length < 0)
        refuse(file, strerror(errno));
    else if (length > HAMI_LIMITS_BYTES_MAX)
        refuse(file, "it is too large");
    else
        read_text(file, (size_t)length);
}

void hami_limits_read(const char *path, struct hami_limits_file *file)
{
    int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    memset(file, 0, sizeof(*file));
    if (descriptor >= 0) {
        read_descriptor(descriptor, file);
        close(descriptor);
    } else if (errno != ENOENT && errno != ENOTDIR) {
        refuse(file, strerror(errno));
    }
}

bool hami_limits_is_replaced(const char *path, const struct stat *read)
{
    struct stat now;

    return stat(path, &now) == 0 && (now.st_dev != read->st_dev || now.st_ino != read->st_ino || now.st_size != read->st_size ||
                                     now.st_mtim.tv_sec != read->st_mtim.tv_sec || now.st_mtim.tv_nsec != read->st_mtim.tv_nsec ||
                                     now.st_ctim.tv_sec != read->st_ctim.tv_sec || now.st_ctim.tv_nsec != read->st_ctim.tv_nsec);
}

const char *hami_limits_setting(const struct hami_limits_file *file, const char *variable)
{
    size_t length = strlen(variable);

    for (const char *line = file->text; *line; line += strlen(line) + 1)
        if (strncmp(line, variable, length) == 0 && line[length] == '=')
            return line + length + 1;
    return NULL;
}

const struct hami_limits_device *hami_limits_of(const struct hami_limits_file *file, const char *uuid)
{
    for (int index = 0; index < file->devices; index++)
        if (hami_is_same_uuid(file->device[index].uuid, uuid))
            return &file->device[index];
    return NULL;
}
