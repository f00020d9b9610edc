#include "file_space.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "options.h"

/* Source: POSIX and Linux, stat: st_blocks counts units of 512 bytes, whatever the file system's block is. */
enum { STAT_BLOCK_BYTES = 512 };

/* Beyond RLIMIT_FSIZE a file does not grow, and the process that tries gets SIGXFSZ, which ends it. */
static bool may_grow_to(off_t bytes)
{
    struct rlimit longest;

    if (getrlimit(RLIMIT_FSIZE, &longest) != 0 || longest.rlim_cur == RLIM_INFINITY || longest.rlim_cur >= (rlim_t)bytes)
        return true;
    errno = EFBIG;
    return false;
}

static bool write_zeros(int file, off_t from, off_t to)
{
    static const char zeros[65536];

    while (from < to) {
        off_t left = to - from;
        ssize_t written = pwrite(file, zeros, left < (off_t)sizeof(zeros) ? (size_t)left : sizeof(zeros), from);

        if (written < 0 && errno != EINTR)
            return false;
        if (written > 0)
            from += written;
    }
    return true;
}

bool hami_file_allocate(int file, off_t bytes)
{
    struct stat status;
    int result;

    if (fstat(file, &status) != 0)
        return false;
    if (status.st_size >= bytes && (off_t)status.st_blocks >= bytes / STAT_BLOCK_BYTES)
        return true;
    if (status.st_size < bytes && !may_grow_to(bytes))
        return false;
    do
        result = fallocate(file, 0, 0, bytes);
    while (result != 0 && errno == EINTR);
    if (result == 0)
        return true;
    if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO)
        return false;
    return write_zeros(file, status.st_size, bytes);
}

static int open_shared(const char *path, off_t bytes)
{
    struct stat status;
    int problem = EINVAL;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);

    if (file < 0)
        return -1;
    if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
        if (status.st_uid == geteuid() && (status.st_mode & 0777) != 0666)
            (void)!fchmod(file, 0666);
        if (hami_file_allocate(file, bytes))
            return file;
        problem = errno;
    }
    close(file);
    errno = problem;
    return -1;
}

void *hami_file_map_beside_region(const char *suffix, size_t bytes, const char *consequence)
{
    char path[PATH_MAX];
    void *address = MAP_FAILED;
    int file = -1;

    errno = ENAMETOOLONG;
    if (snprintf(path, sizeof(path), "%s%s", hami_options()->region_path, suffix) < (int)sizeof(path))
        file = open_shared(path, (off_t)bytes);
    if (file >= 0)
        address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (address == MAP_FAILED)
        hami_log(HAMI_LOG_WARNING, "%s: cannot be used: %s; %s", path, strerror(errno), consequence);
    if (file >= 0)
        close(file);
    return address == MAP_FAILED ? NULL : address;
}
