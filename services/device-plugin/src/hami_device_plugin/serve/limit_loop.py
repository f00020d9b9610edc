"""
Keep the driver's limits on the memory of containers that run, until cancelled.

Limits are gone when the driver is loaded again, and perhaps when the last process closes it without persistence mode.
This process holds the driver open while it serves, so a limit ends with neither containers nor hooks. After the
driver's return a session begins, and with it this loop.
Neighbours: `decide.allocate.running_limits` says what must be limited, `adapters.nvml.limits` asks the driver.
"""

import asyncio
from collections.abc import Callable, Iterable

import structlog

from hami_device_plugin.adapters.nvml.limits import read_limit, restore_limit
from hami_device_plugin.decide.allocate.container_limits import ContainerLimits
from hami_device_plugin.decide.allocate.pods import Sharing
from hami_device_plugin.decide.allocate.running_limits import RunningLimit, is_held, running_limits
from hami_device_plugin.serve.context import Context
from hamicommon.model import ContainerShares
from hamicommon.pod.reading import Pod
from hamicommon.runtime.host.control_groups import ControlGroups
from hamicommon.runtime.host.nvml import NvmlError

RESYNC_SECONDS = 30.0

logger = structlog.get_logger()


class LimitLoop:
    """The limits of one session, on a Node whose driver limits memory."""

    def __init__(
        self,
        context: Context,
        sharing: Callable[[], Iterable[Sharing]],
        limits: Callable[[Pod, ContainerShares], ContainerLimits],
    ) -> None:
        """Keep what *limits* returns for the containers that *sharing* returns."""
        self._context = context
        self._sharing = sharing
        self._limits = limits
        self._groups = ControlGroups(context.config.cgroup_root)
        self._failed: set[tuple[str, str]] = set()
        """Containers, by id, and devices for which it was said that a limit cannot be set again."""

    async def run(self) -> None:
        """Look at each container that runs, now and every 30 s."""
        await self._context.view.pod_reflector.synced.wait()
        while True:
            await self._look()
            await asyncio.sleep(RESYNC_SECONDS)

    async def _look(self) -> None:
        wanted = list(running_limits(self._sharing(), self._limits))
        self._failed &= {(limit.group.container_id, limit.uuid) for limit in wanted}
        folders = await asyncio.to_thread(self._groups.find, frozenset(limit.group for limit in wanted))
        for limit in wanted:
            if limit.group in folders:
                await self._keep(limit, folders[limit.group])

    async def _keep(self, limit: RunningLimit, cgroup: str) -> None:
        """Set *limit* for *cgroup* again if the driver has another one."""
        nvml, key = self._context.nvml, (limit.group.container_id, limit.uuid)
        try:
            found = await read_limit(nvml, limit.uuid, cgroup)
            if is_held(limit.size_bytes, found):
                self._failed.discard(key)
                return
            problem, now = "", await restore_limit(nvml, limit.uuid, cgroup, limit.size_bytes)
        except NvmlError as error:
            # It may also have ended meanwhile.
            found, problem, now = None, str(error), None
        name = f"container {limit.container}, device {limit.uuid}: "
        if not problem and is_held(limit.size_bytes, now):
            self._context.metrics.limits_restored.labels("ok").inc()
            text = f"{name}the driver had {_named(found)} and has {_named(limit.size_bytes)} again"
            self._report(limit.pod, "MemoryLimitRestored", text)
            return
        self._context.metrics.limits_restored.labels("error").inc()
        if key not in self._failed:
            self._failed.add(key)
            because = problem or f"it keeps {_named(now)}, perhaps because more is used; end the Pod"
            text = f"{name}the driver does not take {_named(limit.size_bytes)}: {because}"
            self._report(limit.pod, "MemoryLimitMissing", text)

    def _report(self, pod: Pod, reason: str, text: str) -> None:
        logger.warning("The driver had lost a limit on memory", pod=str(pod), found=text)
        self._context.view.report_pod(pod, reason, text)


def _named(size_bytes: int | None) -> str:
    return "no limit on memory" if size_bytes is None else f"a limit of {size_bytes >> 20} MiB"
