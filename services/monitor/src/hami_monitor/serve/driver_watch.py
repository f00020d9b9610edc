"""
Read the Node's devices from the driver, once an interval.

A driver that does not answer is logged once and read again, with growing pauses. Scrapes then show no host metrics.
"""

import asyncio
from collections.abc import Mapping

import structlog

from hami_monitor.adapters.nvml import Driver
from hami_monitor.decide.observation import HostDevice
from hamicommon.runtime.nvml import NvmlError
from hamicommon.runtime.reflector import Backoff

LONGEST_PAUSE_SECONDS = 60.0

logger = structlog.get_logger()


class DriverWatch:
    """The devices of one Node as the driver last reported them."""

    def __init__(self, driver: Driver, interval_seconds: float) -> None:
        """Read *driver* every *interval_seconds*, once `run` is awaited."""
        self._driver = driver
        self._interval_seconds = interval_seconds
        self.devices: tuple[HostDevice, ...] = ()
        """Empty while the driver does not answer."""
        self.order: Mapping[str, int] = {}
        """Index of each UUID on the host; kept while the driver does not answer."""
        self._problem: str | None = "not read yet"

    @property
    def is_available(self) -> bool:
        """Whether the driver answered last time."""
        return self._problem is None

    async def run(self) -> None:
        """Read until cancelled."""
        backoff = Backoff(first_seconds=self._interval_seconds, last_seconds=LONGEST_PAUSE_SECONDS)
        while True:
            try:
                self.devices = await self._driver.devices()
            except NvmlError as error:
                self.devices = ()
                self._report(str(error))
                await asyncio.sleep(backoff.next_seconds(at_least=self._interval_seconds))
                continue
            self.order = {device.uuid: device.index for device in self.devices}
            backoff.reset()
            self._report(None)
            await asyncio.sleep(self._interval_seconds)

    def _report(self, problem: str | None) -> None:
        if problem != self._problem:
            if problem is None:
                logger.info("The driver answers", devices=len(self.devices))
            else:
                logger.warning("No host metrics until the driver answers", error=problem)
        self._problem = problem
