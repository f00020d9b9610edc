"""
Read which device files the driver has for MIG instances.

The driver shows this in /proc, which is the same in every container.
Source: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ ("Device Nodes and Capabilities")
"""

from pathlib import Path

from hami_device_plugin.decide.mig.address import CapabilityError, decode_minors

MINORS = Path("/proc/driver/nvidia-caps/mig-minors")
DEVICES = Path("/proc/devices")
_NAME = "nvidia-caps"


def read_minors() -> dict[str, int]:
    """
    Return the minor number of each capability.

    Raises:
        CapabilityError: the driver does not list them.
    """
    try:
        return decode_minors(MINORS.read_text(encoding="ascii", errors="replace"))
    except OSError as error:
        raise CapabilityError(f"{MINORS} cannot be read: {error.strerror}") from error


def read_major() -> int | None:
    """Return the major number of the capabilities' device files; None if the kernel has none."""
    try:
        rows = [line.split() for line in DEVICES.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return None
    return next((int(row[0]) for row in rows if len(row) == 2 and row[1] == _NAME and row[0].isdecimal()), None)
