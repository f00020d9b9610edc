"""
Ask the NVIDIA driver. The only module with pynvml.

NVML blocks, for ever when a device is broken, so every call runs in a thread and under a deadline.
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
"""Initialisation of many devices without persistence mode takes seconds each."""
EVENT_WAIT_MS = 500
"""A thread that waits holds up the end of the process so long."""
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
    """The driver cannot be asked, or does not answer."""


@dataclass(frozen=True, slots=True)
class Sickness:
    """Devices that became unhealthy; empty UUIDs mean all of them."""

    uuids: frozenset[str]
    reason: str


class Nvml:
    """An initialised NVML; close it when done."""

    def __init__(self, sys_root: Path = Path("/sys")) -> None:
        """Wrap a library that is initialised."""
        self._sys_root = sys_root

    @classmethod
    async def open(cls, driver_root: str) -> "Nvml":
        """
        Load NVML, from below *driver_root* where it is there, else as the linker finds it, and initialise it.

        Raises:
            NvmlError: it is not there or cannot be used.
        """
        try:
            await _call(_load, Path(driver_root))
        except NvmlError as error:
            places = f"--driver-root-ctr-path {driver_root} and where the linker looks"
            raise NvmlError(f"{LIBRARY} cannot be used; it is looked for below {places}: {error}") from error
        return cls()

    async def close(self) -> None:
        """Let go of the driver."""
        with suppress(NvmlError):
            await _call(pynvml.nvmlShutdown)

    async def devices(self) -> tuple[FoundDevice, ...]:
        """
        Return every device, by index.

        Raises:
            NvmlError: a device does not answer.
        """
        return await _call(self._devices)

    async def watch(self, uuids: Sequence[str], policy: HealthPolicy, report: Callable[[Sickness], None]) -> None:
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
                sick = await _call(_subscribe, events, uuid)
                if sick:
                    report(Sickness(frozenset({uuid}), sick))
            while True:
                event = await _to_its_end(_call(_next_event, events, policy))
                if event is not None:
                    report(event)
                    # Waiting fails at once, again and again, after the driver has gone.
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
    Return NVML's library below *driver_root*, links resolved; None where it is not there.
    """
    places = (driver_root / directory / LIBRARY for directory in LIBRARY_DIRECTORIES)
    return next((place.resolve() for place in places if place.exists()), None)


def _load(driver_root: Path) -> None:
    found = library_below(driver_root)
    if found is not None:
        # pynvml opens the bare name; the linker then takes the one that is loaded already.
        ctypes.CDLL(str(found), mode=ctypes.RTLD_GLOBAL)
    pynvml.nvmlInit()


async def _call(function: Callable[..., T], *arguments: Any) -> T:
    """
    Run *function* in a thread, and turn everything that can go wrong there into an `NvmlError`.
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
    Await *call*, and when cancelled let it finish first: what it uses is about to be freed.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait({task})


def _optional(question: Callable[[], T], default: T) -> T:
    """
    Return the driver's answer, *default* where it says that it has none.
    """
    try:
        return question()
    except _UNSUPPORTED:
        return default


def _subscribe(events: Any, uuid: str) -> str | None:
    """
    Ask for *uuid*'s events, and return why the device has to count as unhealthy if that fails.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except _UNSUPPORTED:
        logger.warning("Health of a device is not watched: it has no events", device=uuid)
    except pynvml.NVMLError as error:
        return f"its events cannot be asked for: {error}"
    return None


def _next_event(events: Any, policy: HealthPolicy) -> Sickness | None:
    try:
        event = pynvml.nvmlEventSetWait_v2(events, EVENT_WAIT_MS)
    except pynvml.NVMLError_Timeout:
        return None
    except pynvml.NVMLError as error:
        return Sickness(frozenset(), f"waiting for events failed: {error}")
    if event.eventType != pynvml.nvmlEventTypeXidCriticalError or not policy.is_critical(event.eventData):
        return None
    try:
        uuid = _text(pynvml.nvmlDeviceGetUUID(event.device))
    except pynvml.NVMLError as error:
        return Sickness(frozenset(), f"XID {event.eventData} on a device that cannot be identified: {error}")
    return Sickness(frozenset({uuid}), f"XID {event.eventData}")


def _numa_node(sys_root: Path, bus_id: str) -> int:
    """
    Return the NUMA node of a PCI device, 0 where the kernel does not say.

    NVML writes the domain with eight digits, sysfs with four.
    """
    name = bus_id.lower()
    name = name[4:] if name.startswith("0000") and name.count(":") == 2 and len(name) > 12 else name
    try:
        return max(int((sys_root / "bus/pci/devices" / name / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
