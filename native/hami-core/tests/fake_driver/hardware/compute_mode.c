#include "hardware/compute_mode.h"

#include "hardware/readings.h"
#include "hardware/state.h"

enum hw_compute_mode hw_compute_mode(int device)
{
    int set;

    hw_lock();
    set = device < HW_CONFIGURED_MAX ? hw_state->gpus[device].compute_mode : HW_COMPUTE_DEFAULT;
    hw_unlock();
    return (enum hw_compute_mode)reading(device, "compute-mode", set);
}

void hw_compute_mode_set(int device, enum hw_compute_mode mode)
{
    hw_lock();
    hw_state->gpus[device].compute_mode = mode;
    hw_unlock();
}

bool hw_compute_is_open(int device)
{
    struct hw_process_use users[2];
    enum hw_compute_mode mode = hw_compute_mode(device);
    int count;

    if (mode != HW_COMPUTE_EXCLUSIVE_PROCESS)
        return mode != HW_COMPUTE_PROHIBITED;
    count = hw_processes(device, users, 2);
    return count == 0 || (count == 1 && users[0].serial == hw_self());
}
