#include "hardware/links.h"

#include <stdlib.h>
#include <string.h>

#include "driver/conditions.h"
#include "hardware/hardware.h"

enum { SAME_NODE = 40, SAME_SYSTEM = 50 };

/* Source: nvmlGpuTopologyLevel_t in the NVML API reference. */
static const struct {
    const char *name;
    int level;
} levels[] = {{"internal", 0}, {"single", 10}, {"multiple", 20}, {"hostbridge", 30}, {"node", SAME_NODE}, {"system", SAME_SYSTEM}};

/* Return the level that a test gave to a pair in this order, or -1. */
static int given_level(int gpu, int other)
{
    const struct condition *given = conditions_find(hw_device(gpu)->uuid, "ancestor", NULL);

    for (; given; given = conditions_find(hw_device(gpu)->uuid, "ancestor", given + 1))
        for (size_t index = 0; index < sizeof(levels) / sizeof(levels[0]); index++)
            if (strcmp(given->value[0], hw_device(other)->uuid) == 0 && strcmp(given->value[1], levels[index].name) == 0)
                return levels[index].level;
    return -1;
}

int hw_ancestor(int gpu, int other)
{
    int level = given_level(gpu, other);

    if (gpu == other)
        return 0;
    if (level < 0)
        level = given_level(other, gpu);
    if (level >= 0)
        return level;
    return hw_device(gpu)->numa_node == hw_device(other)->numa_node ? SAME_NODE : SAME_SYSTEM;
}

static int gpu_of_uuid(const char *uuid)
{
    for (int row = 0; row < HW_CONFIGURED_MAX; row++)
        if (hw_exists(row) && strcmp(hw_device(row)->uuid, uuid) == 0)
            return row;
    return -1;
}

static bool is_down(const char *uuid, unsigned int number)
{
    const struct condition *down = conditions_find(uuid, "nvlink-down", NULL);

    while (down && strtoul(down->value[0], NULL, 10) != number)
        down = conditions_find(uuid, "nvlink-down", down + 1);
    return down;
}

unsigned int hw_links(int gpu, struct hw_link *links)
{
    const char *uuid = hw_device(gpu)->uuid;
    const struct condition *given = conditions_find(uuid, "nvlinks", NULL);
    unsigned int count = 0;

    for (; given; given = conditions_find(uuid, "nvlinks", given + 1)) {
        unsigned long links_to_peer = strtoul(given->value[1], NULL, 10);

        for (unsigned long index = 0; index < links_to_peer && count < HW_LINKS_MAX; index++, count++)
            links[count] = (struct hw_link){gpu_of_uuid(given->value[0]), !is_down(uuid, count)};
    }
    return count;
}
