#include "slot_lock.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sys/file.h>

#include "file_lock.h"
#include "options.h"
#include "region_map.h"

enum { FIRST_BYTE = 0x50000000 };

/* The open file that has the lock. The program may close it and get another file under its number, so it is recognised. */
static _Atomic int own_file = -1, own_index = -1;
static _Atomic dev_t own_device;
static _Atomic ino_t own_inode;

static bool is_own_file(int file)
{
    struct stat status;

    return file >= 0 && fstat(file, &status) == 0 && status.st_dev == atomic_load(&own_device) &&
           status.st_ino == atomic_load(&own_inode);
}

static int open_region(void)
{
    return open(hami_options()->region_path, O_RDWR | O_CLOEXEC);
}

static bool ask(int file, int command, short type, int index, struct flock *range)
{
    *range = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)FIRST_BYTE + index, .l_len = 1};
    return fcntl(file, command, range) == 0;
}

static bool adopt(int file)
{
    struct stat status;

    if (file < 0)
        return false;
    if (fstat(file, &status) != 0) {
        close(file);
        return false;
    }
    atomic_store(&own_device, status.st_dev);
    atomic_store(&own_inode, status.st_ino);
    atomic_store(&own_file, file);
    return true;
}

static bool open_own_file(void)
{
    return is_own_file(atomic_load(&own_file)) || adopt(open_region());
}

/* Take the lock where locks on bytes are refused. False if another process has it; without any lock the pid decides. */
static bool take_file_of(int index)
{
    int file = hami_lock_file_open(hami_options()->region_path, (off_t)FIRST_BYTE + index, true);

    if (file < 0)
        return true;
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        bool is_another = errno == EWOULDBLOCK;

        close(file);
        return !is_another;
    }
    hami_slot_lock_forget();
    if (adopt(file))
        atomic_store(&own_index, index);
    return true;
}

/* Whether another process has it there. */
static bool is_file_locked(int index)
{
    int file = hami_lock_file_open(hami_options()->region_path, (off_t)FIRST_BYTE + index, false);
    bool is_locked = file >= 0 ? flock(file, LOCK_SH | LOCK_NB) != 0 : errno != ENOENT;

    if (file >= 0)
        close(file);
    return is_locked;
}

bool hami_slot_lock_take(int index)
{
    struct flock range;

    hami_slot_lock_give();
    if (hami_region_is_private() || !open_own_file())
        return true;
    if (!ask(atomic_load(&own_file), F_OFD_SETLK, F_WRLCK, index, &range)) {
        bool is_another = errno == EAGAIN || errno == EACCES;

        return hami_byte_locks_are_refused(atomic_load(&own_file)) ? take_file_of(index) : !is_another;
    }
    atomic_store(&own_index, index);
    return true;
}

void hami_slot_lock_give(void)
{
    int file = atomic_load(&own_file), index = atomic_exchange(&own_index, -1);
    struct flock range;

    if (index >= 0 && is_own_file(file) && !ask(file, F_OFD_SETLK, F_UNLCK, index, &range))
        flock(file, LOCK_UN);
}

bool hami_slot_is_locked(int index)
{
    int own = atomic_load(&own_file), file;
    struct flock range;
    bool is_free;

    if (hami_region_is_private() || index == atomic_load(&own_index))
        return false;
    file = is_own_file(own) ? own : open_region();
    is_free = file >= 0 && ask(file, F_OFD_GETLK, F_WRLCK, index, &range) && range.l_type == F_UNLCK;
    if (!is_free && file >= 0 && hami_byte_locks_are_refused(file))
        is_free = !is_file_locked(index);
    if (file >= 0 && file != own)
        close(file);
    return !is_free;
}

void hami_slot_lock_forget(void)
{
    int file = atomic_exchange(&own_file, -1);

    atomic_store(&own_index, -1);
    if (is_own_file(file))
        close(file);
}
