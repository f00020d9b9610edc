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

bool hw_compute_serve(int device)
{
    struct hw_process *process;

    hw_lock();
    process = hw_this_process();
    if (process)
        process->device[device].is_served = true;
    hw_unlock();
    return process;
}

static bool is_others(int device)
{
    bool found = false;

    hw_lock();
    hw_reap_dead();
    for (int position = 0; position < hw_state->processes_end; position++) {
        const struct hw_process *process = &hw_state->processes[position];
        const struct hw_share *share = &process->device[device];

        found |= process->pid && process != hw_known_process() && (share->contexts || share->is_served);
    }
    hw_unlock();
    return found;
}

bool hw_compute_is_open(int device, bool is_client)
{
    enum hw_compute_mode mode = hw_compute_mode(device);

    if (mode == HW_COMPUTE_EXCLUSIVE_PROCESS)
        return is_client || !is_others(device);
    return mode != HW_COMPUTE_PROHIBITED;
}
