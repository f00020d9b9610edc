"""
Keep the Node's ResourceSlices as they should be.

They are compared with what the Node offers after each change of either, and written only if one differs. The kubelet
deletes them when it starts, which the watch shows at once.
Neighbours: `decide.dra.offer` decides, `adapters.dra_kube` reads and writes, `driver` starts the loop.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from hami_device_plugin.adapters.dra_kube import DraKube
from hami_device_plugin.decide.dra.offer import generation_of, next_slices
from hami_device_plugin.serve.context import Context
from hamicommon.dra.partitions import Offered
from hamicommon.errors import HamiError
from hamicommon.runtime.api.kube import Conflict, NotFound
from hamicommon.runtime.api.reflector import Backoff

CONFLICT_FIRST_SECONDS = 0.05
"""The first pause when somebody else has changed the slice: it is to be back soon."""

logger = structlog.get_logger()


class Slices:
    """The slices of one session."""

    def __init__(
        self,
        context: Context,
        devices: Callable[[], Sequence[Offered]],
        tokens: Callable[[], int],
        may_write: Callable[[], bool],
    ) -> None:
        """
        Offer what *devices* returns, and as many tokens as *tokens* returns.

        *may_write* returns False while a later version of this plugin serves too: what that one writes holds.
        """
        self._context = context
        self._kube: DraKube = context.dra
        self._devices = devices
        self._tokens = tokens
        self._may_write = may_write
        self._generation = 0
        """The highest that was seen."""
        self.problem = "the Node's ResourceSlice is not written yet"
        """Why kube-scheduler does not see what the Node offers; empty if it does."""

    async def run(self) -> None:
        """Write after each change, until cancelled; try again after a failure."""
        await self._kube.reflector.synced.wait()
        backoff, conflicts = Backoff(), Backoff(CONFLICT_FIRST_SECONDS)
        while True:
            self._kube.changed.clear()
            try:
                await self._keep()
            except (Conflict, NotFound):
                await asyncio.sleep(conflicts.next_seconds())
                continue  # It has changed since the watch showed it.
            except HamiError as error:
                self.problem = f"the Node's ResourceSlice is not up to date: {error}"
                logger.warning("The Node's ResourceSlice is not up to date", error=str(error))
                await asyncio.sleep(backoff.next_seconds())
                continue
            self.problem = ""
            backoff.reset()
            conflicts.reset()
            await self._kube.changed.wait()

    def wake(self) -> None:
        """Compare again soon: what the Node offers has changed."""
        self._kube.changed.set()

    async def _keep(self) -> None:
        present = sorted(self._kube.slices.values(), key=generation_of)
        self._generation = max([self._generation, *map(generation_of, present)])
        change = next_slices(self._context.view.node, self._devices(), present, self._generation, self._tokens())
        if not (change.write or change.delete) or not await asyncio.to_thread(self._may_write):
            return
        for item in change.write:
            await self._kube.write(item)
            self._context.metrics.slice_writes.inc()
            generation, devices = item["spec"]["pool"]["generation"], len(item["spec"].get("devices", ()))
            logger.info("Wrote the Node's ResourceSlice", generation=generation, devices=devices)
        for name in change.delete:
            await self._kube.delete(name)
