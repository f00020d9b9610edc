"""
Read how each device is: its events, memory errors, links, and whether it answers at all.

Each device has an event set, because waiting on a set fails as soon as one of its devices is lost. The driver keeps
events until they are read, so a short look now and then misses none, and NVML's thread stays free.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml
import structlog

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED, optional
from hami_device_plugin.decide.health.condition import Reading
from hami_device_plugin.decide.health.faults import Cause
from hami_device_plugin.decide.inventory import is_instance
from hamicommon.runtime.host.nvml import Nvml, NvmlHangError

T = TypeVar("T")

LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_GPU_NOT_FOUND})
ANY_INSTANCE = 0xFFFFFFFF
"""In an event: the whole GPU."""
ACTIONS = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset of the GPU",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a reboot of the Node",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "a drain, and a reset of the GPU",
}
"""Recovery actions of the driver that end the use of a device. Drivers before 570 report none."""

logger = structlog.get_logger()


class HealthReader:
    """The health of devices; it subscribes to the events of each at its first reading."""

    def __init__(self, nvml: Nvml, *, is_complete: bool) -> None:
        """Read through *nvml*; unless *is_complete*, read only whether a device answers."""
        self._nvml = nvml
        self._is_complete = is_complete
        self._subscriptions: dict[str, _Subscription] = {}
        self._unheard: set[str] = set()
        """The devices whose events could not be read at the last reading."""
        self._openings = 0
        """The opening of NVML to which the subscriptions belong."""

    async def read(self, uuid: str) -> Reading:
        """
        Return a reading of the device *uuid*. If it is this call that hangs, the device is at fault.

        Raises:
            NvmlError: NVML is not open, or an earlier call hangs.
        """
        try:
            return await self._nvml.call(self._read, uuid)
        except NvmlHangError as error:
            if not error.is_first:
                raise
            return Reading(problem=(Cause.SILENT, str(error)))

    def _read(self, uuid: str) -> Reading:
        xids: list[int] = []
        if self._openings != self._nvml.openings:
            self._openings = self._nvml.openings
            self._subscriptions.clear()
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if self._is_complete:
                xids += self._heard_xids(uuid, handle)
            # The driver remembers the name of a lost device, but has to ask it for the memory in use.
            optional(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle), None)
            if not self._is_complete or is_instance(uuid):
                return Reading(xids=tuple(xids))
            return Reading(
                xids=tuple(xids),
                ecc_uncorrected=_detail(_ecc_uncorrected, handle),
                links_up=_detail(_links_up, handle),
                action=_detail(_action, handle) or "",
            )
        except pynvml.NVMLError_Uninitialized:
            raise
        except pynvml.NVMLError as error:
            cause = Cause.LOST if error.value in LOST else Cause.UNREADABLE
            return Reading(problem=(cause, f"the driver says: {error}"), xids=tuple(xids))

    def _heard_xids(self, uuid: str, handle: Any) -> Iterator[int]:
        """
        Yield the XIDs since the last reading. An error says nothing about the device: the calls after this one do.

        The driver keeps the events, so they are read once it works again.
        """
        try:
            yield from self._new_xids(uuid, handle)
        except pynvml.NVMLError_Uninitialized:
            raise
        except pynvml.NVMLError as error:
            if uuid not in self._unheard:
                self._unheard.add(uuid)
                logger.warning("XIDs of a device are not seen", device=uuid, error=str(error))
        else:
            self._unheard.discard(uuid)

    def _new_xids(self, uuid: str, handle: Any) -> Iterator[int]:
        if uuid not in self._subscriptions:
            self._subscriptions[uuid] = _subscribe(uuid, handle)
        subscription = self._subscriptions[uuid]
        while subscription.events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(subscription.events, 0)
            except pynvml.NVMLError_Timeout:
                return
            is_xid = event.eventType == pynvml.nvmlEventTypeXidCriticalError
            if is_xid and subscription.concerns(int(event.gpuInstanceId)):
                yield int(event.eventData)


@dataclass(frozen=True, slots=True)
class _Subscription:
    """The events of one device."""

    events: Any
    """The event set; None if the device has no events."""
    instance: int | None = None
    """The number of a GPU instance, of whose GPU the events are; None for a GPU."""

    def concerns(self, instance: int) -> bool:
        """Return whether an event of the GPU instance *instance* is one of this device."""
        return self.instance is None or instance in (self.instance, ANY_INSTANCE)


def _subscribe(uuid: str, handle: Any) -> _Subscription:
    try:
        gpu, instance = handle, None
        if is_instance(uuid):
            gpu = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
            instance = int(pynvml.nvmlDeviceGetGpuInstanceId(handle))
        events = pynvml.nvmlEventSetCreate()
        try:
            pynvml.nvmlDeviceRegisterEvents(gpu, pynvml.nvmlEventTypeXidCriticalError, events)
        except pynvml.NVMLError:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(events)
            raise
    except UNSUPPORTED:
        logger.warning("XIDs of a device are not watched: it has no events", device=uuid)
        return _Subscription(None)
    return _Subscription(events, instance)


def _detail(read: Callable[[Any], T], handle: Any) -> T | None:
    """Return what *read* returns; None if it fails although the device is not lost, which is no fault of the device."""
    try:
        return read(handle)
    except pynvml.NVMLError as error:
        if error.value in LOST:
            raise
        return None


def _ecc_uncorrected(handle: Any) -> int:
    kind, counter = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, counter))


def _links_up(handle: Any) -> frozenset[int]:
    up = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            if pynvml.nvmlDeviceGetNvLinkState(handle, link):
                up.add(link)
        except pynvml.NVMLError_InvalidArgument:
            break
        except UNSUPPORTED:
            if link == 0:
                raise
    return frozenset(up)


def _action(handle: Any) -> str:
    [field] = pynvml.nvmlDeviceGetFieldValues(handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return ACTIONS.get(int(field.value.uiVal), "") if field.nvmlReturn == pynvml.NVML_SUCCESS else ""
