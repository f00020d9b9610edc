"""
Open the driver, wait until it is there, and let go of it.

NVML is open only while the driver may be used: never while the Node says that the driver must be let go. Waiting is
said once in the log and all the time at /readyz, and costs one try in half a minute.
Neighbours: `hamicommon.wire.driver_pause` says when to let go, `hamicommon.runtime.host.nvml` opens and closes NVML.
"""

import asyncio
from contextlib import suppress

import structlog

from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.nvml.devices import device_count
from hami_device_plugin.metrics import Metrics
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.runtime.host.nvml import Nvml, NvmlError, NvmlHangError
from hamicommon.wire.driver_pause import pause_reason

RETRY_FIRST_SECONDS = 1.0
RETRY_LAST_SECONDS = 30.0

logger = structlog.get_logger()


class Driver:
    """The access of one session to the driver below *root*."""

    def __init__(self, nvml: Nvml, view: NodeKube, metrics: Metrics, root: str) -> None:
        """Open and close *nvml* as the Node in *view* says."""
        self._nvml = nvml
        self._view = view
        self._metrics = metrics
        self._root = root
        self.problem: str | None = "the driver is not open yet"
        """Why there is no driver; None while it is open."""
        self.silent = asyncio.Event()
        """Set once a call has not returned while the driver was opened."""

    async def open(self, *, is_required: bool = False) -> None:
        """
        Return once NVML is open and has a device. Wait while the driver is missing, silent, or must be let go.

        Raises:
            NvmlError: *is_required*, and the driver answers that it cannot be used.
        """
        backoff = Backoff(RETRY_FIRST_SECONDS, RETRY_LAST_SECONDS)
        while not await self._try_open(is_required=is_required):
            with suppress(TimeoutError):
                async with asyncio.timeout(backoff.next_seconds()):
                    await self._view.wait_node(lambda node: pause_reason(node) is not None)
        logger.info("The driver is open")
        self.problem = None
        self._metrics.driver_available.set(1)

    async def reopen(self) -> None:
        """
        Close NVML and open it again, which is how it sees that a lost device is back.

        Raises:
            NvmlError: the driver cannot be used any more.
        """
        await self._nvml.open(self._root)

    async def let_go(self, reason: str) -> None:
        """Close the driver because of *reason*; wait for a call that hangs."""
        self._report(reason)
        self._metrics.driver_available.set(0)
        held = ""
        while True:
            try:
                await self._nvml.close()
            except NvmlHangError as error:
                held = held or f"{reason}, but it is still held: {error}"  # the first one: each next has more seconds
                self._report(held)
                await asyncio.sleep(RETRY_FIRST_SECONDS)
            else:
                self._report(reason)
                return

    async def _try_open(self, *, is_required: bool) -> bool:
        """Open NVML; return False, and leave the driver closed, if it has no device or must be let go."""
        reason = pause_reason(self._view.node)
        if reason is not None:
            await self.let_go(f"the driver is let go: {reason}")
            await self._view.wait_node(lambda node: pause_reason(node) is None)
        try:
            await self._nvml.open(self._root)
            if await self._nvml.call(device_count):
                return True
        except NvmlHangError as error:
            await self._endure(error)
        except NvmlError as error:
            if is_required:
                raise
            await self.let_go(str(error))
        else:
            await self.let_go("the driver shows no device")
        return False

    async def _endure(self, error: NvmlHangError) -> None:
        """Wait for a call that hangs. The process cannot do better: it could not even end before the call returns."""
        reason = f"the driver is silent: {error}"
        self._view.report("DriverSilent", f"{reason}. No device takes new containers", is_warning=True)
        self.silent.set()
        await self.let_go(reason)
        self._view.report("DriverBack", "the driver answers again")

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            logger.warning("Waiting for the driver", because=problem)
        self.problem = problem
