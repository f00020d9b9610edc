"""
Rate the links between the offered devices, once, and again when other devices are offered.

A failure leaves out the devices that do not answer, and is retried: HAMi's plugin never retries.
Neighbours: `decide.probe.links` rates, `node_loop` writes the scores, `calls` prefers replicas by them.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.nvml.links import find_links
from hami_device_plugin.decide.probe.links import LinkedDevice, LinkScores, link_scores
from hamicommon.runtime.host.nvml import Nvml, NvmlError

LOOK_SECONDS = 30.0
RETRY_SECONDS = 5.0
ASYMMETRIC_LINK = "AsymmetricGPUP2PLink"
"""HAMi's reason."""

logger = structlog.get_logger()


class LinkLoop:
    """The ratings of one session."""

    def __init__(self, nvml: Nvml, view: NodeKube, to_rate: Callable[[], Sequence[str]]) -> None:
        """Rate the devices whose UUIDs *to_rate* returns, once `run` is awaited."""
        self._nvml = nvml
        self._view = view
        self._to_rate = to_rate
        self._rated: Sequence[str] = ()
        self.scores: LinkScores | None = None
        """None until the links were read."""

    async def run(self) -> None:
        """Rate again after each change, until cancelled."""
        while True:
            uuids = tuple(self._to_rate())
            if not uuids or uuids == self._rated or await self._rate(uuids):
                self._rated = uuids
                await asyncio.sleep(LOOK_SECONDS)
            else:
                await asyncio.sleep(RETRY_SECONDS)

    async def _rate(self, uuids: Sequence[str]) -> bool:
        """Rate *uuids*, and return whether all of them answered."""
        found: list[LinkedDevice] = []
        for uuid in uuids:
            try:
                found.append(await find_links(self._nvml, uuid, [other for other in uuids if other != uuid]))
            except NvmlError as error:
                logger.warning("A device's links cannot be read", device=uuid, error=str(error))
        before, self.scores = self.scores, link_scores(found, uuids)
        if self.scores != before:
            self._view.to_announce.set()
            self._report_asymmetric(self.scores)
        return len(found) == len(uuids)

    def _report_asymmetric(self, scores: LinkScores) -> None:
        if not scores.asymmetric:
            return
        pairs = ", ".join(f"{one} and {other}" for one, other in scores.asymmetric)
        message = f"The devices of a pair describe their links differently, so the pair scores 0: {pairs}"
        logger.warning(message)
        self._view.report(ASYMMETRIC_LINK, message, is_warning=True)
