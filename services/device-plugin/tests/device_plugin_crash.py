"""
A process that prepares one container and is killed on the way.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import AsyncMock, Mock

from device_plugin_builders import VENDOR
from device_plugin_process import A100, NODE, T4, a_pod

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library, regions
from hami_device_plugin.decide.allocate.allocation import GrantPolicy
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec
from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.probe.enforcement import Enforcement
from hami_device_plugin.serve.allocate import identity, preparation
from hami_device_plugin.serve.allocate.identity import IdentityAllocator
from hami_device_plugin.serve.allocate.preparation import Preparer
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hamicommon.model import Device
from hamicommon.pod.reading import read_pod
from hamicommon.runtime.host import atomic_file
from hamicommon.vendors import nvidia
from hamicommon.vendors.nvidia import NvidiaConfig

RESOURCE = "nvidia.com/gpu"
REPLICA = f"{A100}-0"
DEVICE = "a-00000000-0000-4000-8000-000000000000"
REGION = "00000000-0000-4000-8000-000000000000.cache"
DIRECTORY = "hook/vgpu/containers/uid-p_main"
POD = read_pod(a_pod("p", f"{T4},NVIDIA,700,5:;", "main=1"), (VENDOR,))


def prepare(host: Path) -> None:
    """Prepare the container below *host*, as PreStartContainer does."""
    asyncio.run(an_allocator(host).pre_start(frozenset({REPLICA})))


def prepare_until(host: Path, step: str) -> None:
    """Prepare the container below *host*, and be killed just before *step*."""
    die_before(*STEPS[step])
    prepare(host)


def die_before(module: Any, name: str, earlier_calls: int) -> None:
    """Have the function *name* of *module* kill this process at the call after *earlier_calls*."""
    function, calls = getattr(module, name), 0

    def die_at_last(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        return function(*args, **kwargs) if calls <= earlier_calls else _die()

    setattr(module, name, die_at_last)


def install_until(host: Path, step: str) -> None:
    """Install the library below *host*, and be killed just before *step*."""
    module, name = LIBRARY_STEPS[step]
    setattr(module, name, _die)
    install_library(host)


def install_library(host: Path) -> None:
    """Install a library below *host*, beside an older version of it."""
    library.install(host / "source.so", host / "vgpu", "2")


def an_allocator(host: Path) -> IdentityAllocator:
    """Return an allocator whose kubelet granted one replica to the container `main` of the Pod `p`."""
    entry = Allocated("uid-p", "main", RESOURCE, frozenset({REPLICA}), (cdi.qualified(DEVICE),))
    # The library of this version is ours; HAMi's would need its lock directory.
    os.makedirs(host / "hook/vgpu", exist_ok=True)  # noqa: PTH103 -- Path.mkdir is one of the steps
    (host / "hook/vgpu" / f"libvgpu.so.{__version__}").touch()
    served = ServedNode(
        name=NODE,
        resource=RESOURCE,
        vendor=nvidia.vendor(NvidiaConfig(resource_count_name=RESOURCE)),
        policy=GrantPolicy(hook_path=str(host / "hook")),
        enforcement=Enforcement("library", "r"),
        devices={uuid: Device(uuid, 1, 1, 100, "NVIDIA") for uuid in (A100, T4)},
        cdi_root=host / "cdi",
        limit_hook=cdi.LimitHook("/limit-hook", "/", "/sys/fs/cgroup"),
        memory_bytes={},
    )
    driver = Mock(hook="/hook", part=AsyncMock(return_value=DriverSpec()))
    return IdentityAllocator(
        served,
        Preparer(served, driver=driver, mig=AsyncMock(granted=AsyncMock(return_value=()))),
        kubelet=AsyncMock(entries=AsyncMock(return_value=(entry,)), listed=AsyncMock(return_value=())),
        pods=AsyncMock(wait_pod=AsyncMock(return_value=POD)),
        last_line=Mock(),
        driver=driver,
        instances=None,
    )


def _die(*_args: object, **_kwargs: object) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


WRITES: dict[str, tuple[Any, str, int]] = {
    "writing the limits": (preparation, "write_limits", 0),
    "making a file for the limits": (atomic_file, "_new_temporary", 0),
    "renaming the limits": (Path, "replace", 0),
    "writing the spec": (cdi_files, "write_spec", 0),
    "making a file for the spec": (atomic_file, "_new_temporary", 1),
    "renaming the spec": (Path, "replace", 1),
}
"""The steps that write what a container gets, by step: the function called next, and how often it was called before."""
STEPS: dict[str, tuple[Any, str, int]] = {
    "asking who owns the replicas": (identity, "owner", 0),
    "preparing the region": (preparation, "prepare_region", 0),
    "setting the old directory aside": (regions, "set_aside", 0),
    "making the new directory": (Path, "mkdir", 0),
    "moving the region": (Path, "is_symlink", 0),
    "clearing the last run's region": (regions, "_clear", 0),
    **WRITES,
    "letting the runtime notice": (asyncio, "sleep", 0),
}
"""By step, the function that is called next, and how often it was called before."""
LIBRARY_STEPS: dict[str, tuple[Any, str]] = {
    "removing what a killed process left": (library, "remove_temporaries"),
    "making a temporary file": (atomic_file, "_new_temporary"),
    "giving it its mode": (os, "fchmod"),
    "synchronising it": (os, "fsync"),
    "renaming it": (Path, "replace"),
}
Prepare = Callable[[Path], None]
