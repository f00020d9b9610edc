#include "cuda/device/oracle.h"

#include "cuda/fake.h"
#include "time/schedule.h"

ORACLE uint64_t fake_truth_busy_ns(int device, uint64_t pid, uint64_t from_ns, uint64_t to_ns)
{
    return device >= 0 && device < HW_DEVICES_MAX && schedule_open() ? schedule_busy_ns(device, (pid_t)pid, from_ns, to_ns) : 0;
}

static bool is_known(int device)
{
    return hw_open() && device >= 0 && device < hw_device_count();
}

ORACLE uint64_t fake_truth_memory(int device, uint64_t pid)
{
    if (!is_known(device))
        return 0;
    return pid ? hw_memory_of(device, (pid_t)pid) : hw_memory_used(device);
}

ORACLE uint64_t fake_truth_memory_peak(int device)
{
    return is_known(device) ? hw_memory_peak(device) : 0;
}

ORACLE uint64_t fake_truth_managed(int device, uint64_t pid)
{
    return is_known(device) ? hw_managed_of(device, (pid_t)pid) : 0;
}
