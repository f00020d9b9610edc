"""
Keep the Node's ResourceSlice as it should be.

The slice is compared with what the Node offers after each change of either, and written only if it differs. The kubelet
deletes it when it starts, which the watch shows at once.
Neighbours: `decide.dra.offer` decides, `adapters.dra_kube` reads and writes, `driver` starts the loop.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from hami_device_plugin.adapters.dra_kube import DraKube
from hami_device_plugin.decide.dra.offer import next_slice
from hami_device_plugin.serve.context import Context
from hamicommon.dra.slices import OfferedDevice
from hamicommon.errors import HamiError
from hamicommon.model import Object
from hamicommon.runtime.api.kube import Conflict, NotFound
from hamicommon.runtime.api.reflector import Backoff

CONFLICT_FIRST_SECONDS = 0.05
"""The first pause when somebody else has changed the slice: it is to be back soon."""

logger = structlog.get_logger()


class Slices:
    """The slice of one session."""

    def __init__(
        self, context: Context, devices: Callable[[], Sequence[OfferedDevice]], may_write: Callable[[], bool]
    ) -> None:
        """
        Offer what *devices* returns.

        *may_write* returns False while a later version of this plugin serves too: what that one writes holds.
        """
        self._context = context
        self._kube: DraKube = context.dra
        self._devices = devices
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
        present = sorted(self._kube.slices.values(), key=_generation)
        self._generation = max([self._generation, *map(_generation, present)])
        newest = present[-1] if present else None
        wanted = next_slice(self._context.view.node, self._devices(), newest, self._generation)
        if not (wanted or present[:-1]) or not await asyncio.to_thread(self._may_write):
            return
        if wanted is not None:
            await self._kube.write(wanted)
            self._context.metrics.slice_writes.inc()
            generation = wanted["spec"]["pool"]["generation"]
            logger.info("Wrote the Node's ResourceSlice", generation=generation, devices=len(wanted["spec"]["devices"]))
        for other in present[:-1]:
            await self._kube.delete(other["metadata"]["name"])


def _generation(item: Object) -> int:
    found = (item["spec"].get("pool") or {}).get("generation")
    return found if isinstance(found, int) else 0
