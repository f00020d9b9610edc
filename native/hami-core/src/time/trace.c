#include "trace.h"

#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "file_space.h"
#include "log.h"
#include "options.h"

struct hami_trace *_Atomic hami_trace;

static _Atomic bool is_asked;

void hami_trace_begin(void)
{
    struct hami_trace *trace;

    if (atomic_load_explicit(&is_asked, memory_order_relaxed) || atomic_exchange(&is_asked, true))
        return;
    if (hami_options()->log_level < HAMI_LOG_EVERYTHING || !hami_options()->region_path[0])
        return;
    trace = hami_file_map_beside_region(HAMI_TRACE_SUFFIX, sizeof(*trace), "launches are not traced");
    if (!trace)
        return;
    trace->magic = HAMI_TRACE_MAGIC;
    atomic_store_explicit(&hami_trace, trace, memory_order_release);
}

void hami_trace_add(const struct hami_trace_entry *filled)
{
    struct hami_trace *trace = atomic_load_explicit(&hami_trace, memory_order_acquire);
    uint64_t number = atomic_fetch_add(&trace->next, 1) + 1;
    struct hami_trace_entry *entry = &trace->entries[(number - 1) % HAMI_TRACE_ENTRIES];

    atomic_store(&entry->number, 0);
    atomic_thread_fence(memory_order_release);
    memcpy((char *)entry + sizeof(entry->number), (const char *)filled + sizeof(entry->number),
           sizeof(*entry) - sizeof(entry->number));
    entry->at_ns = hami_now_ns();
    entry->pid = (int32_t)getpid();
    atomic_store_explicit(&entry->number, number, memory_order_release);
}
