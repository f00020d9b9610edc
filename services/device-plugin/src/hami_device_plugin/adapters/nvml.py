"""
Read devices and their health from the NVIDIA driver. The only module with pynvml.

NVML calls block, and never return if a device is broken. So each call runs in a thread, with a deadline.
Must never decide what a fact means: `inventory` and `health` do.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import asyncio
import ctypes
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pynvml
import structlog

from hami_device_plugin.decide.health import HealthPolicy
from hami_device_plugin.decide.inventory import FoundDevice
from hamicommon.errors import HamiError

T = TypeVar("T")

CALL_SECONDS = 30.0
"""Without persistence mode, each device takes seconds to initialise."""
EVENT_WAIT_MS = 500
"""The end of the process waits this long for the thread that waits for events."""
FAILED_WAIT_SECONDS = 5.0
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
_UNSUPPORTED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)

logger = structlog.get_logger()


class NvmlError(HamiError):
    """The driver cannot be used, or does not answer."""


@dataclass(frozen=True, slots=True)
class UnhealthyDevices:
    """Devices that became unhealthy; no UUID means all devices."""

    uuids: frozenset[str]
    reason: str


class Nvml:
    """An initialised NVML; close it when done."""

    def __init__(self, sys_root: Path = Path("/sys")) -> None:
        """Wrap the initialised library."""
        self._sys_root = sys_root

    @classmethod
    async def open(cls, driver_root: str) -> "Nvml":
        """
        Load NVML from below *driver_root*, or else as the linker finds it, and initialise it.

        Raises:
            NvmlError: it is missing or cannot be used.
        """
        try:
            await _call(_load, Path(driver_root))
        except NvmlError as error:
            places = f"--driver-root-ctr-path {driver_root} and in the linker's directories"
            raise NvmlError(f"{LIBRARY} cannot be used; searched below {places}: {error}") from error
        return cls()

    async def close(self) -> None:
        """Shut NVML down."""
        with suppress(NvmlError):
            await _call(pynvml.nvmlShutdown)

    async def devices(self) -> tuple[FoundDevice, ...]:
        """
        Return every device, by index.

        Raises:
            NvmlError: a device does not answer.
        """
        return await _call(self._devices)

    async def watch(
        self, uuids: Sequence[str], policy: HealthPolicy, report: Callable[[UnhealthyDevices], None]
    ) -> None:
        """
        Report each device of *uuids* that becomes unhealthy, until cancelled; return if the driver has no events.
        """
        try:
            events = await _call(pynvml.nvmlEventSetCreate)
        except NvmlError as error:
            logger.warning("Health is not watched: the driver has no events", error=str(error))
            return
        try:
            for uuid in uuids:
                problem = await _call(_subscribe, events, uuid)
                if problem:
                    report(UnhealthyDevices(frozenset({uuid}), problem))
            while True:
                event = await _to_its_end(_call(_next_event, events, policy))
                if event is not None:
                    report(event)
                    # Without a driver, waiting fails at once each time.
                    await asyncio.sleep(0 if event.uuids else FAILED_WAIT_SECONDS)
        finally:
            with suppress(NvmlError):
                await _call(pynvml.nvmlEventSetFree, events)

    def _devices(self) -> tuple[FoundDevice, ...]:
        return tuple(self._device(index) for index in range(pynvml.nvmlDeviceGetCount()))

    def _device(self, index: int) -> FoundDevice:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        bus_id = _optional(lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId), "")
        return FoundDevice(
            uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
            index=index,
            name=_text(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=_optional(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), None),
            numa=_numa_node(self._sys_root, bus_id),
            minor=_optional(lambda: int(pynvml.nvmlDeviceGetMinorNumber(handle)), index),
        )


def library_below(driver_root: Path) -> Path | None:
    """
    Return the path of NVML below *driver_root*, links resolved; None if it is not there.
    """
    places = (driver_root / directory / LIBRARY for directory in LIBRARY_DIRECTORIES)
    return next((place.resolve() for place in places if place.exists()), None)


def _load(driver_root: Path) -> None:
    found = library_below(driver_root)
    if found is not None:
        # pynvml opens the bare name, and the linker then uses the library that is already loaded.
        ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()


async def _call(function: Callable[..., T], *arguments: Any) -> T:
    """
    Run *function* in a thread, and raise its driver errors and time-outs as `NvmlError`.
    """
    name = getattr(function, "__name__", "NVML")
    try:
        return await asyncio.wait_for(asyncio.to_thread(function, *arguments), CALL_SECONDS)
    except TimeoutError as error:
        raise NvmlError(f"driver: {name} did not answer in {CALL_SECONDS:.0f} s") from error
    except (pynvml.NVMLError, OSError) as error:
        raise NvmlError(f"driver: {name.strip('_')}: {error}") from error


async def _to_its_end(call: Coroutine[Any, Any, T]) -> T:
    """
    Await *call*; when cancelled, let it finish first, because its event set is about to be freed.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


def _optional(read: Callable[[], T], default: T) -> T:
    """
    Return what *read* returns; *default* if the driver does not support it.
    """
    try:
        return read()
    except _UNSUPPORTED:
        return default


def _subscribe(events: Any, uuid: str) -> str | None:
    """
    Subscribe to the events of *uuid*; return why the device counts as unhealthy if that fails, else None.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except _UNSUPPORTED:
        logger.warning("Health of a device is not watched: it has no events", device=uuid)
    except pynvml.NVMLError as error:
        return f"no subscription to its events: {error}"
    return None


def _next_event(events: Any, policy: HealthPolicy) -> UnhealthyDevices | None:
    try:
        event = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
    except pynvml.NVMLError_Timeout:
        return None
    except pynvml.NVMLError as error:
        return UnhealthyDevices(frozenset(), f"waiting for events failed: {error}")
    if event.eventType != pynvml.nvmlEventTypeXidCriticalError or not policy.is_critical(event.eventData):
        return None
    try:
        uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
    except pynvml.NVMLError as error:
        return UnhealthyDevices(frozenset(), f"XID {event.eventData} on a device that cannot be identified: {error}")
    return UnhealthyDevices(frozenset({uuid}), f"XID {event.eventData}")


def _numa_node(sys_root: Path, bus_id: str) -> int:
    """
    Return the NUMA node of a PCI device; 0 if the kernel does not know.

    NVML writes the PCI domain with eight digits, sysfs with four.
    """
    name = bus_id.lower()
    name = name[4:] if name.startswith("0000") and name.count(":") == 2 and len(name) > 12 else name
    try:
        return max(int((sys_root / "bus/pci/devices" / name / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
