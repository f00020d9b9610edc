#include "visible.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The position in `from` that `entry` names by index or by UUID, or -1. */
static int position_of(const struct visible *from, const char *entry, bool is_prefix_enough)
{
    size_t length = strlen(entry);
    char *end;
    long index;

    if (isdigit((unsigned char)entry[0])) {
        index = strtol(entry, &end, 10);
        return *end == '\0' && index < from->count ? (int)index : -1;
    }
    if (length < 5)
        return -1;
    for (int position = 0; position < from->count; position++) {
        const char *uuid = hw_device(from->device[position])->uuid;

        if (is_prefix_enough ? strncmp(uuid, entry, length) == 0 : strcmp(uuid, entry) == 0)
            return position;
    }
    return -1;
}

static char *trimmed(char *entry)
{
    while (isspace((unsigned char)*entry))
        entry++;
    for (size_t length = strlen(entry); length && isspace((unsigned char)entry[length - 1]); length--)
        entry[length - 1] = '\0';
    return entry;
}

void visible_to_container(struct visible *visible)
{
    const char *setting = getenv("NVIDIA_VISIBLE_DEVICES");
    struct visible all = {.count = hw_device_count()};
    bool is_listed[HW_DEVICES_MAX] = {false};
    char list[4096];
    char *rest = list, *entry;

    for (int index = 0; index < all.count; index++)
        all.device[index] = index;
    *visible = all;
    if (!setting || strcmp(setting, "all") == 0)
        return;
    visible->count = 0;
    if (strcmp(setting, "none") == 0 || strcmp(setting, "void") == 0)
        return;
    snprintf(list, sizeof(list), "%s", setting);
    while ((entry = strsep(&rest, ",")) != NULL) {
        int position = position_of(&all, trimmed(entry), false);

        if (position >= 0)
            is_listed[position] = true;
    }
    for (int index = 0; index < all.count; index++)
        if (is_listed[index])
            visible->device[visible->count++] = index;
}

void visible_to_cuda(struct visible *visible)
{
    const char *setting = getenv("CUDA_VISIBLE_DEVICES");
    struct visible container;
    bool is_listed[HW_DEVICES_MAX] = {false};
    char list[4096];
    char *rest = list, *entry;

    visible_to_container(&container);
    *visible = container;
    if (!setting)
        return;
    visible->count = 0;
    snprintf(list, sizeof(list), "%s", setting);
    while ((entry = strsep(&rest, ",")) != NULL) {
        int position = position_of(&container, trimmed(entry), true);

        if (position < 0)
            return;
        if (is_listed[position]) {
            visible->count = 0;
            return;
        }
        is_listed[position] = true;
        visible->device[visible->count++] = container.device[position];
    }
}
