#include "time/marks.h"

#include <pthread.h>
#include <stddef.h>

#include "driver/variables.h"
#include "hardware/shared_file.h"
#include "time/schedule.h"

/* Where a mark is: nowhere, behind work whose end is unknown, or at a time of a context. */
enum place { REACHED, HELD, PLACED };

struct mark {
    enum place place;
    int device, context;
    uint64_t owner; /* as schedule_owner() returns it */
    uint64_t at;
};

struct marks {
    struct shared_lock lock;
    int count;
    struct mark marks[MARKS_MAX];
};

static struct shared_file file;
static struct marks *marks;
static pthread_once_t opened = PTHREAD_ONCE_INIT;

static void forget_parent(void)
{
    shared_file_disown(&file);
}

static void open_marks(void)
{
    const char *folder = variable("FAKE_DRIVER_DIR");

    if (!shared_file_open(&file, folder && folder[0] ? folder : NULL, "marks", sizeof(*marks), NULL))
        return;
    marks = file.memory;
    pthread_atfork(NULL, NULL, forget_parent);
}

static bool lock(void)
{
    pthread_once(&opened, open_marks);
    if (marks)
        shared_lock_take(&file, &marks->lock);
    return marks != NULL;
}

static void unlock(void)
{
    shared_lock_give(&marks->lock);
}

int mark_create(void)
{
    int mark = -1;

    if (!lock())
        return -1;
    if (marks->count < MARKS_MAX)
        mark = marks->count++;
    unlock();
    return mark;
}

bool mark_exists(int mark)
{
    bool exists;

    if (!lock())
        return false;
    exists = mark >= 0 && mark < marks->count;
    unlock();
    return exists;
}

static void move(int mark, struct mark to)
{
    if (!lock())
        return;
    marks->marks[mark] = to;
    unlock();
}

void mark_hold(int mark)
{
    move(mark, (struct mark){.place = HELD});
}

void mark_place(int mark, int device, int context, uint64_t at)
{
    if (context < 0)
        move(mark, (struct mark){.place = REACHED});
    else
        move(mark, (struct mark){PLACED, device, context, schedule_owner(context), at});
}

bool mark_is_reached(int mark)
{
    struct mark copy;
    bool is_reached;

    if (!lock())
        return true;
    copy = marks->marks[mark];
    unlock();
    if (copy.place != PLACED)
        return copy.place == REACHED;
    schedule_lock(copy.device);
    is_reached = schedule_owner(copy.context) != copy.owner || schedule_reached_at(copy.context) >= copy.at;
    schedule_unlock(copy.device);
    return is_reached;
}
