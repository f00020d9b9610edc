"""
Make the directories of containers before the kubelet calls, while their images are pulled.

The watch shows a Pod as soon as it is bound. Nothing depends on this: a start makes whatever is missing, and each
directory is made once.
Neighbours: `regions` has the directories, `identity` fills them, `service` starts the loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import structlog

from hami_device_plugin.adapters.regions import premake_directory
from hami_device_plugin.decide.allocate.allocation import container_directory
from hami_device_plugin.decide.allocate.pods import AllocationError, granted_shares
from hami_device_plugin.serve.context import Context
from hamicommon.model import ContainerShares
from hamicommon.pod.reading import Pod

logger = structlog.get_logger()


class PremadeDirectories:
    """The loop of one session that allocates by identity."""

    def __init__(self, context: Context, gets_library: Callable[[Pod, ContainerShares], bool]) -> None:
        """Follow the Node's Pods; *gets_library* says whether a container with some shares gets the library."""
        self._node = context.config.node_name
        self._hook_path = context.config.hook_path
        self._vendor = context.vendor
        self._view = context.view
        self._gets_library = gets_library
        self._done: set[str] = set()
        """UIDs of Pods that need nothing more."""

    async def run(self) -> None:
        """Make the directories of Pods that will start, until cancelled."""
        while True:
            self._view.pods_changed.clear()
            directories = list(self._missing())
            if directories:
                await asyncio.to_thread(_make, directories)
            await self._view.pods_changed.wait()

    def _missing(self) -> Iterator[Path]:
        """Yield the directory of each container that needs one, of the Pods that were bound since the last call."""
        self._done &= self._view.pods.keys()
        for uid in self._view.pods.keys() - self._done:
            pod = self._view.pods[uid]
            if pod.has_started:
                self._done.add(uid)
            elif self._vendor.allocated_key in pod.annotations:
                self._done.add(uid)
                yield from self._directories(pod)

    def _directories(self, pod: Pod) -> Iterator[Path]:
        try:
            granted = granted_shares(pod, self._node, self._vendor)
        except AllocationError:
            return  # The start says so.
        for container, shares in granted.items():
            if shares and self._gets_library(pod, shares):
                yield Path(container_directory(self._hook_path, pod.uid, container))


def _make(directories: list[Path]) -> None:
    for directory in directories:
        try:
            premake_directory(directory)
        except OSError as error:
            logger.info("A container's directory is not made ahead", error=str(error))
            return
