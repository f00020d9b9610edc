"""
Read the Node's devices from the driver, once an interval.

A driver that does not answer is logged once and read again, with growing pauses. Scrapes then show no host metrics. The
same holds while the Node says that the driver must be let go; the monitor does not hold it then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from hami_monitor.adapters.kube import Node
from hami_monitor.adapters.nvml import Driver
from hami_monitor.decide.host import HostDevice
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.runtime.host.nvml import NvmlError
from hamicommon.wire.driver_pause import client_pause_reason

LONGEST_PAUSE_SECONDS = 60.0
SOON_SECONDS = 3.0
"""Until the next reading, if `look` wants one soon."""
NODE_SECONDS = 30.0
"""The driver is opened only once the Node is known, but an API server that does not answer is not waited for longer."""

logger = structlog.get_logger()


class DriverWatch:
    """The devices of one Node as the driver last reported them."""

    def __init__(
        self,
        driver: Driver,
        node: Node,
        interval_seconds: float,
        look: Callable[[Sequence[HostDevice]], Awaitable[bool]],
    ) -> None:
        """
        Read *driver* every *interval_seconds* unless *node* forbids it, once `run` is awaited.

        Each reading is given to *look*, which returns whether the next one shall follow soon. It is empty while the
        driver does not answer.
        """
        self._driver = driver
        self._node = node
        self._interval_seconds = interval_seconds
        self._look = look
        self.devices: tuple[HostDevice, ...] = ()
        """Empty while the driver does not answer."""
        self.order: Mapping[str, int] = {}
        """Index of each UUID on the host; kept while the driver does not answer."""
        self._problem: str | None = "not read yet"
        self._unread: Mapping[int, str] = {}

    @property
    def is_available(self) -> bool:
        """Whether the driver answered last time."""
        return self._problem is None

    async def run(self) -> None:
        """Read until cancelled."""
        if not self._node.seen:
            await self._wait(NODE_SECONDS)
        backoff = Backoff(first_seconds=self._interval_seconds, last_seconds=LONGEST_PAUSE_SECONDS)
        while True:
            problem = await self._read()
            self._report(problem)
            is_more_wanted = await self._look(self.devices)
            if problem is None:
                backoff.reset()
                longest = SOON_SECONDS if is_more_wanted else self._interval_seconds
                await self._wait(min(longest, self._interval_seconds))
            else:
                await self._wait(backoff.next_seconds(at_least=self._interval_seconds))

    async def _read(self) -> str | None:
        """Read the devices; return why there are none, or None."""
        reason = client_pause_reason(self._node.seen)
        if reason is not None:
            held = await self._driver.let_go()
            self.devices = ()
            return f"{reason}, but the driver is still held: {held}" if held else reason
        try:
            found = await self._driver.devices()
        except NvmlError as error:
            self.devices = ()
            return str(error)
        self.devices = found.read
        # A lost device keeps the index it had.
        self.order = {**self.order, **{device.uuid: device.index for device in found.read}}
        if found.unread.keys() - self._unread.keys():
            logger.warning("Devices cannot be read, they have no host metrics", because=dict(found.unread))
        self._unread = found.unread
        return None

    async def _wait(self, seconds: float) -> None:
        """Wait, but not past a change of whether the driver may be held."""
        before = client_pause_reason(self._node.seen), bool(self._node.seen)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while (client_pause_reason(self._node.seen), bool(self._node.seen)) == before:
                    self._node.changed.clear()
                    await self._node.changed.wait()

    def _report(self, problem: str | None) -> None:
        if problem != self._problem:
            if problem is None:
                logger.info("The driver answers", devices=len(self.devices))
            else:
                logger.warning("No host metrics until the driver answers", error=problem)
        self._problem = problem
