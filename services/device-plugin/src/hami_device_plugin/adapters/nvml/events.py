"""
Read the events that devices report.

The driver keeps events until they are read, so a short look now and then misses none, and NVML's thread stays free.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pynvml
import structlog

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED, text
from hami_device_plugin.decide.health import HealthPolicy
from hamicommon.runtime.nvml import Nvml, NvmlError

LOOK_SECONDS = 0.5

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class UnhealthyDevices:
    """Devices that became unhealthy; no UUID means all devices."""

    uuids: frozenset[str]
    reason: str


async def watch(
    nvml: Nvml, uuids: Sequence[str], policy: HealthPolicy, report: Callable[[UnhealthyDevices], None]
) -> None:
    """
    Report each device of *uuids* that becomes unhealthy, until cancelled; return if the driver has no events.
    """
    try:
        events = await nvml.call(pynvml.nvmlEventSetCreate)
    except NvmlError as error:
        logger.warning("Health is not watched: the driver has no events", error=str(error))
        return
    try:
        for uuid in uuids:
            problem = await nvml.call(_subscribe, events, uuid)
            if problem:
                report(UnhealthyDevices(frozenset({uuid}), problem))
        while True:
            while (event := await nvml.call(_next_event, events, policy)) is not None:
                report(event)
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        with suppress(NvmlError):
            await nvml.call(pynvml.nvmlEventSetFree, events)


def _subscribe(events: Any, uuid: str) -> str | None:
    """
    Subscribe to the events of *uuid*; return why the device counts as unhealthy if that fails, else None.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    except UNSUPPORTED:
        logger.warning("Health of a device is not watched: it has no events", device=uuid)
    except pynvml.NVMLError as error:
        return f"no subscription to its events: {error}"
    return None


def _next_event(events: Any, policy: HealthPolicy) -> UnhealthyDevices | None:
    """Return the next event that makes a device unhealthy; None if no more are there."""
    while True:
        try:
            event = pynvml.nvmlEventSetWait_v2(events, 0)
        except pynvml.NVMLError_Timeout:
            return None
        if event.eventType != pynvml.nvmlEventTypeXidCriticalError or not policy.is_critical(event.eventData):
            continue
        return UnhealthyDevices(frozenset({text(pynvml.nvmlDeviceGetUUID(event.device))}), f"XID {event.eventData}")
