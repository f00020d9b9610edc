"""
Look after the devices: read how each is, and offer them accordingly.

One device's trouble is that device's. While the whole driver is silent, let go or gone, all devices are offered as
unhealthy, containers that run are not touched, and the kubelet's calls are answered as before.
Neighbours: `decide.health` decides, `adapters.nvml` reads, `probe.devices` has found the devices, `probe.driver` opens
and closes NVML, `service` offers the devices.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import structlog

from hami_device_plugin.adapters.nvml.devices import discover, driver_load
from hami_device_plugin.adapters.nvml.health import HealthReader
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.health.condition import Condition, observe
from hami_device_plugin.decide.health.faults import Cause
from hami_device_plugin.decide.health.record import encode_faults, restored
from hami_device_plugin.decide.inventory import with_health
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.mig.static import offered_devices
from hami_device_plugin.serve.probe.devices import NodeDevices
from hami_device_plugin.serve.probe.driver import Driver
from hamicommon.model import Device
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.runtime.host.nvml import NvmlError, NvmlHangError
from hamicommon.wire import keys
from hamicommon.wire.driver_pause import pause_reason

ROUND_SECONDS = 2.0
"""With NVML's deadline of 5 s for a call, a fault reaches the kubelet within 10 s."""
RESCAN_SECONDS = 30.0
REOPEN_LAST_SECONDS = 600.0
"""NVML sees that a lost device is back only when it is opened again, which can take seconds for each device."""
LOST = frozenset({Cause.LOST, Cause.UNREADABLE})

logger = structlog.get_logger()


class HealthLoop:
    """The devices of one session."""

    def __init__(self, context: Context, driver: Driver, devices: NodeDevices, changed: Callable[[], None]) -> None:
        """Follow *devices*; *changed* is called when `devices` returns others."""
        self._config = context.config
        self._nvml = context.nvml
        self._view = context.view
        self._metrics = context.metrics
        self._conditions = context.conditions
        self._driver = driver
        self._found = devices
        self._changed = changed
        self._reader = HealthReader(context.nvml, is_complete=context.config.health.is_on)
        self._first = devices.inventory(devices.offered.found, context.config)
        """The devices that answered when the session began, as they are offered."""
        self._trouble = ""
        """Why no device is healthy, whatever its condition; empty if the driver answers."""
        self._heeded = ""
        """The text of `hami.io/device-restore` that was obeyed and can be removed."""
        self._scanned = time.monotonic()
        self._reopenings = Backoff(RESCAN_SECONDS, REOPEN_LAST_SECONDS)
        self._reopen_at = 0.0

    def adopt(self, config: Config) -> None:
        """Work by *config* from now on."""
        self._config = config
        self._first = self._found.inventory(self._found.offered.found, config)

    def devices(self, config: Config) -> tuple[Device, ...]:
        """Return the devices to offer by *config*, by index, each with its health."""
        devices = self._found.by(config, self._conditions)
        return with_health(devices, frozenset(device.id for device in devices)) if self._trouble else devices

    def annotations(self) -> Mapping[str, str | None]:
        """Return the Node's annotations about faults as they should be; None removes one."""
        wanted: dict[str, str | None] = {keys.DEVICE_FAULTS: encode_faults(self._conditions)}
        if self._heeded and self._view.annotations.get(keys.DEVICE_RESTORE) == self._heeded:
            wanted[keys.DEVICE_RESTORE] = None
        return wanted

    async def look(self) -> None:
        """
        Read each device once, before any is offered: a broken one never is, and XIDs are heard from then on.

        Raises:
            NvmlError: the driver is gone.
        """
        with suppress(NvmlHangError):
            await self._read_all(await driver_load(self._nvml))

    async def run(self) -> str:
        """Look after the devices; return why a new session is needed: `devices` or `driver`."""
        while True:
            reason = pause_reason(self._view.node)
            if reason is not None:
                await self._leave_driver(f"the driver is let go: {reason}", "DriverReleased")
                return "driver"
            self._obey()
            try:
                if not await self._round():
                    return "devices"
            except NvmlHangError as error:
                logger.debug("No reading", error=str(error))
            except NvmlError as error:
                await self._leave_driver(f"the driver is gone: {error}", "DriverGone")
                return "driver"
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_SECONDS):
                    await self._view.wait_node(self._has_word)

    async def _leave_driver(self, reason: str, event: str) -> None:
        """Let go of the driver, and return once it is there again."""
        self._set_trouble(reason, event)
        await self._driver.let_go(reason)
        await self._driver.open()
        # The devices stay unhealthy until the next session has found them.
        self._view.report("DriverBack", "the driver answers again")
        await self._view.send_reports()

    async def _round(self) -> bool:
        """
        Read each device once; return False if the driver shows others than it did.

        Raises:
            NvmlHangError: an earlier call hangs; all devices keep their health.
            NvmlError: the driver is gone.
        """
        try:
            load = await driver_load(self._nvml)
        except NvmlHangError as error:
            if error.is_first:
                self._set_trouble(f"the driver is silent: {error}", "DriverSilent")
            raise
        self._set_trouble("")
        if time.monotonic() - self._scanned >= RESCAN_SECONDS and not await self._is_unchanged():
            return False
        await self._read_all(load)
        return True

    async def _read_all(self, load: str) -> None:
        for device in self.devices(self._config):
            reading = await self._reader.read(device.id)
            self._keep(device, observe(self._condition(device.id), reading, self._config.health, _now(), load))

    async def _is_unchanged(self) -> bool:
        """Return whether the driver shows the devices that are offered, or fewer."""
        self._scanned = time.monotonic()
        is_any_lost = any(LOST & known.faults.keys() for known in self._conditions.values())
        if not self._found.discovery.unread and not is_any_lost:
            self._reopenings.reset()
        elif time.monotonic() >= self._reopen_at:
            self._reopen_at = time.monotonic() + self._reopenings.next_seconds()
            await self._driver.reopen()
        now = await offered_devices(self._nvml, self._config, (await discover(self._nvml)).found)
        is_same = all(device in self._first for device in self._found.inventory(now.found, self._config))
        return is_same and now.by_resource == self._found.offered.by_resource

    def _keep(self, device: Device, condition: Condition) -> None:
        """Keep the *condition* of *device*, and tell what is new."""
        before, self._conditions[device.id] = self._condition(device.id), condition
        if before.faults.keys() == condition.faults.keys() and before.reason() == condition.reason():
            return
        name = f"device {device.id} ({device.type}, index {device.index})"
        if condition.is_healthy:
            logger.info("A device is healthy again", device=device.id)
            self._view.report("DeviceHealthy", f"{name} is healthy again", about=device.id)
        else:
            reason, recovery = condition.reason(), condition.recovery()
            logger.error("A device is unhealthy", device=device.id, because=reason, until=recovery)
            message = f"{name} is unhealthy: {reason}. It takes no new containers. Healthy again {recovery}"
            self._view.report("DeviceUnhealthy", message, is_warning=True, about=device.id)
        self._metrics.show_faults(device.id, [cause.value for cause in condition.faults])
        self._changed()

    def _obey(self) -> None:
        """Forget the faults of the devices that the annotation `hami.io/device-restore` names."""
        word = self._view.annotations.get(keys.DEVICE_RESTORE, "")
        if word == self._heeded:
            return
        self._heeded = word
        for device in self.devices(self._config) if word else ():
            if restored(word, device.id):
                # What is known of its links and memory errors counts as repaired, too.
                self._keep(device, Condition())
        self._view.to_announce.set()

    def _has_word(self, node: Mapping[str, Any]) -> bool:
        """Return whether *node* says something new about its driver or devices."""
        annotations = node.get("metadata", {}).get("annotations") or {}
        return pause_reason(node) is not None or annotations.get(keys.DEVICE_RESTORE, "") != self._heeded

    def _set_trouble(self, reason: str, event: str = "DriverBack") -> None:
        """Make all devices unhealthy for *reason*, or end that if it is empty; report *event* if that is new."""
        if reason == self._trouble:
            return
        self._trouble = reason
        if reason:
            logger.error("No device is healthy", because=reason)
            self._view.report(event, f"{reason}. No device takes new containers", is_warning=event != "DriverReleased")
        else:
            logger.info("The driver answers again")
            self._view.report(event, "the driver answers again")
        self._changed()

    def _condition(self, uuid: str) -> Condition:
        return self._conditions.get(uuid, Condition())


def _now() -> datetime:
    return datetime.now(UTC)
