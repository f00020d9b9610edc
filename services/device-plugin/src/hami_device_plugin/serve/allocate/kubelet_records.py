"""
Read what the kubelet has recorded of the replicas that it gave to containers.

Neighbours: `adapters.checkpoint` and `adapters.kubelet` read, `identity`, `lock` and `last_line` ask.
"""

from collections.abc import Sequence

from hami_device_plugin.adapters.checkpoint import CheckpointError
from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.serve.context import Context
from hamicommon.runtime.program.shared_read import SharedRead

CHECKPOINT_PAUSE_SECONDS = 0.002
LIST_PAUSE_SECONDS = 0.01
"""The kubelet answers 100 lists a second."""


class KubeletRecords:
    """The records of one session's kubelet; starts of the same time share a read."""

    def __init__(self, context: Context) -> None:
        """Read by *context*, at each call."""
        self._checkpoint = context.checkpoint
        self._resource = context.config.resource
        self.entries = SharedRead(self._read, CHECKPOINT_PAUSE_SECONDS)
        """Returns the kubelet's checkpoint."""
        self.listed = SharedRead(context.resources.listed, LIST_PAUSE_SECONDS)
        """Returns the kubelet's list of containers."""

    def known(self) -> Sequence[Allocated] | None:
        """Return the kubelet's checkpoint; None if it cannot be read."""
        try:
            return self._checkpoint.entries()
        except CheckpointError:
            return None

    def served(self, pod_uid: str) -> int | None:
        """Return how many containers of a Pod have replicas of the resource; None if that is unknown."""
        entries = self.known()
        wanted = (pod_uid, self._resource)
        return None if entries is None else sum((one.pod_uid, one.resource) == wanted for one in entries)

    async def _read(self) -> Sequence[Allocated]:
        # Without a thread: the kubelet has just written the file, so that it is in memory.
        return self._checkpoint.read()
