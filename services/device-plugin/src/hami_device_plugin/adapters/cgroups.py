"""
Find out what this Node's kernel has for limits on device memory, and keep the plugin's own cgroup.

Only cgroup v2. Neighbours: `nvml.limits` has the driver limit a cgroup, `native/limit-hook` does so for containers.
Source: https://docs.kernel.org/admin-guide/cgroup-v2.html
"""

from collections.abc import Collection, Iterable
from pathlib import Path

from hami_device_plugin.adapters.files import host_files_of
from hami_device_plugin.decide.probe.enforcement import BACKENDS, DMEM, MISC

_CONTROLLERS, _ENABLED = "cgroup.controllers", "cgroup.subtree_control"
_OWN = "hami-device-plugin"


def is_mounted(root: Path) -> bool:
    """Return whether cgroup v2 is mounted at *root*."""
    return (root / _CONTROLLERS).exists()


def find_backend(root: Path, pci_addresses: Iterable[str]) -> str | None:
    """
    Return what holds limits on the GPUs at *pci_addresses*: one of BACKENDS, None if the kernel has neither.

    The driver chooses when it is loaded. It registers each GPU with dmem if it uses that.
    """
    regions = {line.partition(" ")[0].lower() for line in _read(root / "dmem.capacity").splitlines()}
    gpus = {f"nvidia/{address.lower()}/vidmem" for address in pci_addresses}
    if gpus and gpus <= regions:
        return DMEM
    return MISC if MISC in _read(root / _CONTROLLERS).split() else None


def own_group(root: Path) -> Path:
    """
    Make the plugin's own cgroup below *root* unless it is there, with the controllers of limits. Return its folder.

    It has no processes and stays: on misc the driver never forgets a cgroup, and would get to know another one at each
    start.

    Raises:
        HostFileError: it cannot be made.
    """
    folder = root / _OWN
    with host_files_of("a cgroup of the plugin's own, to try the driver's limits"):
        folder.mkdir(exist_ok=True)
        for controller in _missing(root):
            with (root / _ENABLED).open("a") as file:
                file.write(f"+{controller}")
    return folder


def _missing(root: Path) -> Collection[str]:
    """Return the controllers that cgroups below *root* could have and do not."""
    there, enabled = (set(_read(root / name).split()) for name in (_CONTROLLERS, _ENABLED))
    return [controller for controller in BACKENDS if controller in there - enabled]


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
