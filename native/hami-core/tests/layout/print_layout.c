/*
 * Print the region's layout as one JSON object, with the names of the vector file that every reader is checked against.
 */
#include <stddef.h>
#include <stdio.h>

#include "hami/region.h"

struct field {
    const char *name;
    size_t offset;
};

#define REGION(name, field) {name, offsetof(struct hami_region, field)}
#define SLOT(name, field) {name, offsetof(struct hami_slot, field)}

static const struct field region_fields[] = {
    REGION("initialized_flag", initialized_flag),
    REGION("major_version", major_version),
    REGION("minor_version", minor_version),
    REGION("sm_init_flag", sm_init_flag),
    REGION("owner_pid", owner_pid),
    REGION("sem", sem),
    REGION("device_count", device_count),
    REGION("uuids", uuids),
    REGION("limit", limit),
    REGION("sm_limit", sm_limit),
    REGION("procs", procs),
    REGION("proc_num", proc_num),
    REGION("utilization_switch", utilization_switch),
    REGION("recent_kernel", recent_kernel),
    REGION("priority", priority),
    REGION("last_kernel_time", last_kernel_time),
    REGION("sem_postinit", sem_postinit),
};

static const struct field slot_fields[] = {
    SLOT("pid", pid),
    SLOT("hostpid", host_pid),
    SLOT("used", used),
    SLOT("monitorused", monitor_used),
    SLOT("device_util", device_use),
    SLOT("status", status),
    SLOT("seqlock", seqlock),
};

/* What this library adds to HAMi's layout. */
static const struct field records[] = {
    REGION("MARK_START", sem.records),
    REGION("UNREACHED", sem.unhooked_loads),
    {"PEAK", offsetof(struct hami_device_memory, peak)},
    {"WAITS", offsetof(struct hami_device_memory, waits)},
    {"WAIT_REASON_COUNT", HAMI_WAIT_REASONS},
    {"WAITING", offsetof(struct hami_device_use, waiting)},
    {"WAITED", offsetof(struct hami_device_use, waited)},
    {"MARK", HAMI_REGION_RECORDS},
};

static void print_fields(const char *name, const struct field *fields, size_t count)
{
    printf(", \"%s\": {", name);
    for (size_t index = 0; index < count; index++)
        printf("%s\"%s\": %zu", index ? ", " : "", fields[index].name, fields[index].offset);
    printf("}");
}

int main(void)
{
    printf("{\"layout\": \"v1.2\", \"region_size\": %zu, \"slot_size\": %zu, \"memory_size\": %zu, \"sem_size\": %zu, "
           "\"util_size\": %zu, \"file_size\": %zu",
           sizeof(struct hami_region), sizeof(struct hami_slot), sizeof(struct hami_device_memory), sizeof(struct hami_semaphore),
           sizeof(struct hami_device_use), HAMI_REGION_FILE_BYTES);
    print_fields("region", region_fields, sizeof(region_fields) / sizeof(region_fields[0]));
    print_fields("slot", slot_fields, sizeof(slot_fields) / sizeof(slot_fields[0]));
    print_fields("records", records, sizeof(records) / sizeof(records[0]));
    printf("}\n");
    return 0;
}
