#include "time/profile.h"

#include <stdlib.h>
#include <string.h>

/* Return the step at a time, which is not before the first step. */
static size_t step_at(const struct profile *profile, uint64_t at)
{
    size_t index = profile->count - 1;

    while (index > 0 && profile->steps[index].from_at > at)
        index--;
    return index;
}

static void erase(struct profile *profile, size_t first, size_t count)
{
    memmove(&profile->steps[first], &profile->steps[first + count], (profile->count - first - count) * sizeof(*profile->steps));
    profile->count -= count;
}

static void forget(struct profile *profile, uint64_t now_at)
{
    erase(profile, 0, step_at(profile, now_at));
    if (profile->steps[0].from_at < now_at)
        profile->steps[0].from_at = now_at;
}

static bool make_room(struct profile *profile)
{
    struct profile_step *grown;

    if (profile->count + 2 <= profile->room)
        return true;
    grown = realloc(profile->steps, (profile->room * 2 + 8) * sizeof(*grown));
    if (!grown)
        return false;
    profile->steps = grown;
    profile->room = profile->room * 2 + 8;
    if (!profile->count)
        profile->steps[profile->count++] = (struct profile_step){0, 0};
    return true;
}

/* Return the earliest time with room for `part` during all of `duration`. */
static uint64_t find_room(const struct profile *profile, uint64_t earliest_at, uint64_t duration, unsigned int part)
{
    uint64_t start = earliest_at;

    for (size_t index = step_at(profile, earliest_at); index + 1 < profile->count; index++) {
        if (profile->steps[index].used + part > PROFILE_WHOLE)
            start = profile->steps[index + 1].from_at;
        else if (profile->steps[index + 1].from_at >= start + duration)
            break;
    }
    return start;
}

/* Make a step begin at a time; returns its index. */
static size_t split(struct profile *profile, uint64_t at)
{
    size_t index = step_at(profile, at);

    if (profile->steps[index].from_at == at)
        return index;
    memmove(&profile->steps[index + 1], &profile->steps[index], (profile->count - index) * sizeof(*profile->steps));
    profile->count++;
    profile->steps[index + 1].from_at = at;
    return index + 1;
}

static void join(struct profile *profile, size_t index)
{
    if (index > 0 && index < profile->count && profile->steps[index].used == profile->steps[index - 1].used)
        erase(profile, index, 1);
}

bool profile_place(struct profile *profile, uint64_t now_at, uint64_t earliest_at, uint64_t duration, unsigned int part,
                   uint64_t *end_at)
{
    size_t first, last;
    uint64_t start;

    if (!make_room(profile))
        return false;
    forget(profile, now_at);
    start = find_room(profile, earliest_at > now_at ? earliest_at : now_at, duration, part);
    first = split(profile, start);
    last = split(profile, start + duration);
    for (size_t index = first; index < last; index++)
        profile->steps[index].used += part;
    join(profile, last);
    join(profile, first);
    *end_at = start + duration;
    return true;
}

void profile_clear(struct profile *profile)
{
    free(profile->steps);
    memset(profile, 0, sizeof(*profile));
}
