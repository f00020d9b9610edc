"""
Wait until this plugin is of the only kind on its Node, because plugins of two kinds would promise one device twice.

While the kind of a Node changes, the new plugin starts before the old one has ended. And claims outlive a plugin of
kind `dra`: one of kind `plugin` would not count their shares, and the kubelet cannot end their Pods without the former.
Neighbours: `adapters.kind_lock` tells whether another plugin serves, `session` waits before it serves.
"""

import asyncio
from pathlib import Path

import structlog

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.files import host_files_of
from hami_device_plugin.adapters.kind_lock import KindLock
from hami_device_plugin.serve.context import Context
from hamicommon.dra.names import DRA, PLUGIN

POLL_SECONDS = 0.5
EVENT = "NodeNotServed"

logger = structlog.get_logger()


class SoleKind:
    """The right of one session to serve the Node."""

    def __init__(self, context: Context) -> None:
        """Hold nothing before `take`."""
        self._context = context
        self._lock = KindLock(context.config.vgpu_directory, context.config.node_kind)
        self.problem: str | None = None
        """Why `take` waits; None if it does not."""

    async def take(self) -> None:
        """
        Wait until nothing of another kind is on the Node; from then until `release`, no other kind serves it.

        Raises:
            HamiError: the lock cannot be used.
        """
        while (problem := self._try()) is not None:
            if problem != self.problem:
                logger.warning("The Node is not served", reason=problem)
                self._context.view.report(EVENT, problem, is_warning=True)
            self.problem = problem
            await asyncio.sleep(POLL_SECONDS)
        self.problem = None

    def release(self) -> None:
        """Let a plugin of another kind serve."""
        self._lock.release()

    def _try(self) -> str | None:
        """Hold the lock and return None; hold nothing and return what is in the way. Raises: HamiError."""
        config = self._context.config
        with host_files_of("the lock of the Node's kind cannot be used"):
            other = self._lock.take()
            if other is not None:
                return f"a plugin of kind {other} still serves this Node, and this one is of kind {config.node_kind}"
            claims = cdi_files.prepared_claims(Path(config.cdi_root)) if config.node_kind == PLUGIN else ()
            if not claims:
                return None
            self._lock.release()
        return (
            f"{len(claims)} ResourceClaims are prepared here, and a plugin of kind {PLUGIN} does not count their "
            f"shares: make it a Node of kind {DRA} again, drain it, and then change its kind"
        )
