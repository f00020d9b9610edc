"""
Read the Node's devices from the NVIDIA driver. The only room with pynvml.

The first reading opens NVML. Any error of the whole driver closes it, and the next reading opens it again. A device
that cannot be read is left out. Each device is one call with its deadline, so another call waits for one device only.
`readings` reads the values of a device, `processes` those of the processes on it.
Neighbours: `hamicommon.runtime.host.nvml` owns NVML's thread and deadlines, `hami_monitor.decide.host` has the values.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pynvml

from hami_monitor.adapters.nvml.processes import read_processes, used_by_cgroup
from hami_monitor.adapters.nvml.readings import XidErrors, read_device
from hami_monitor.decide.host import HostDevice
from hamicommon.runtime.host.nvml import Nvml, NvmlError, NvmlHangError

READ_SECONDS = 10.0
"""Longest wait for a reading of one device."""
REOPEN_SECONDS = 60.0
"""A device that was lost answers only after NVML was opened again."""


@dataclass(frozen=True, slots=True)
class Devices:
    """A reading of the Node's devices."""

    read: tuple[HostDevice, ...] = ()
    """Those that answer, in the driver's order."""
    unread: Mapping[int, str] = field(default_factory=dict)
    """Why a device cannot be read, by its index."""


class Driver:
    """The NVIDIA driver of the Node."""

    def __init__(self, root: str = "/driver-root") -> None:
        """Prepare; *root* is where the driver's root is mounted here."""
        self._root = root
        self._nvml = Nvml()
        self._opened = 0.0
        self._xids = XidErrors()
        self._sampled_at: dict[str, int] = {}
        """Time of the last sample of processes' use that was read, by UUID, in the driver's clock."""

    async def devices(self) -> Devices:
        """
        Read every device of the Node; open NVML if it is closed.

        Raises:
            NvmlError: the driver is missing, fails, or has not answered in time. NVML is closed unless it hangs.
        """
        if not self._nvml.is_open:
            await self._nvml.open(self._root)
            self._opened = time.monotonic()
            self._xids = XidErrors()
        try:
            found = await self._read()
        except NvmlHangError:
            raise
        except NvmlError:
            await self._close()
            raise
        if found.unread and time.monotonic() - self._opened > REOPEN_SECONDS:
            await self._close()
        return found

    async def used_by_cgroup(self, uuid: str, cgroups: Collection[str]) -> Mapping[str, int]:
        """
        Return the memory on the device *uuid* of each of *cgroups* that has a limit there, in bytes.

        A cgroup is the full path of its folder. The result is empty if the driver does not limit memory by cgroup.

        Raises:
            NvmlError: the driver is not open, fails, or has not answered in time.
        """
        if not self._nvml.is_open:
            raise NvmlError("the driver is not open")
        return await self._nvml.call(used_by_cgroup, uuid, tuple(cgroups))

    async def let_go(self) -> str | None:
        """Hold the driver no more; return why it is still held, None if it is not."""
        try:
            await self._nvml.close()
        except NvmlHangError as error:
            return str(error)
        return None

    async def _read(self) -> Devices:
        read: list[HostDevice] = []
        unread: dict[int, str] = {}
        for index in range(await self._nvml.call(pynvml.nvmlDeviceGetCount)):
            found = await self._nvml.call(self._device, index, seconds=READ_SECONDS)
            if isinstance(found, str):
                unread[index] = found
            else:
                read.append(found)
        return Devices(tuple(read), unread)

    async def _close(self) -> None:
        with suppress(NvmlError):
            await self._nvml.close()

    def _device(self, index: int) -> HostDevice | str:
        """Return the device at *index*, or why it cannot be read. An error of the whole driver is raised."""
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            device = read_device(handle, index)
            processes, self._sampled_at[device.uuid] = read_processes(handle, self._sampled_at.get(device.uuid, 0))
            return replace(device, processes=processes, xid_errors=self._xids.read(handle, device.uuid))
        except pynvml.NVMLError_Uninitialized:
            raise
        except pynvml.NVMLError as error:
            return str(error)
