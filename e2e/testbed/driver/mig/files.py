"""
What the driver shows of MIG in /proc, and the device files of instances.

Owns their form. Must never ask a driver. Neighbour: `hardware` has the devices.
Source: NVIDIA MIG User Guide, "Device Nodes and Capabilities".
"""

from pathlib import Path

MAJOR = 508
"""The major number of the device files of capabilities. The kernel gives a driver any that is free."""
_GPU_INSTANCES, _COMPUTE_INSTANCES = 15, 8
"""How many of each the driver reserves numbers for."""


def mig_minors(gpus: int) -> str:
    """
    Return what the driver shows in `/proc/driver/nvidia-caps/mig-minors` for *gpus* GPUs.

    A line is the name of a capability and the number N of its device file `/dev/nvidia-caps/nvidia-capN`.
    """
    lines = ["config 1", "monitor 2"]
    for gpu in range(gpus):
        for instance in range(_GPU_INSTANCES):
            minor = 3 + (gpu * _GPU_INSTANCES + instance) * (1 + _COMPUTE_INSTANCES)
            lines.append(f"gpu{gpu}/gi{instance}/access {minor}")
            lines += [f"gpu{gpu}/gi{instance}/ci{part}/access {minor + 1 + part}" for part in range(_COMPUTE_INSTANCES)]
    return "\n".join([*lines, ""])


def show_mig(proc: Path, gpus: int = 2) -> Path:
    """Write what the driver of *gpus* GPUs shows of MIG in /proc into the folder *proc*, and return it."""
    (proc / "driver/nvidia-caps").mkdir(parents=True, exist_ok=True)
    (proc / "driver/nvidia-caps/mig-minors").write_text(mig_minors(gpus))
    (proc / "devices").write_text(f"Character devices:\n  1 mem\n195 nvidia\n{MAJOR} nvidia-caps\n")
    return proc


def device_files(gpu: int, instance: int, part: int = 0) -> list[str]:
    """Return the device files of a compute instance, *part*, by the numbers that the driver reserves for it."""
    minors = dict(line.split() for line in mig_minors(gpu + 1).splitlines())
    names = (f"gpu{gpu}/gi{instance}/access", f"gpu{gpu}/gi{instance}/ci{part}/access")
    return [f"/dev/nvidia{gpu}", *(f"/dev/nvidia-caps/nvidia-cap{minors[name]}" for name in names)]
