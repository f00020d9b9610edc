"""
Decide what CUDA MPS does for a container: a second way to limit compute, on a Node whose operator runs MPS's daemon.

MPS gives a program a part of the device's multiprocessors, in place of a part of its time. The program reads the part
from its environment, so this limit is as cooperative as the library's. It also holds for programs that load no library.
The paths are those of NVIDIA's own device plugin.
Neighbours: `serve.hardware.compute` finds out whether it would hold, `identity` adds it to a container's grant.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.17.0/cmd/mps-control-daemon/mps/root.go
Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hami_device_plugin.decide.allocation import Grant, Mount
from hamicommon.errors import HamiError
from hamicommon.model import Share

MODE = "mps"
"""HAMi's name of the operating mode."""
PIPE_DIRECTORY = "CUDA_MPS_PIPE_DIRECTORY"
THREAD_PERCENTAGE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
NO_LIMIT_PERCENT = 100
_CONTAINER_ROOT = "/mps"
_SHARED_MEMORY = "/dev/shm"


class MpsError(HamiError):
    """A container cannot be a client of MPS."""


@dataclass(frozen=True, slots=True)
class MpsDaemon:
    """Where the MPS control daemon of a Node meets its clients."""

    root: str
    """The folder on the host, here under the same path."""
    resource: str
    """The resource whose devices it has, such as `nvidia.com/gpu`."""

    @property
    def pipe(self) -> str:
        """The folder of its pipes."""
        return f"{self.root}/{self.resource}/pipe"

    @property
    def shared_memory(self) -> str:
        """The folder that it and its clients have as `/dev/shm`."""
        return f"{self.root}/shm"

    @property
    def pipe_in_container(self) -> str:
        """The folder of its pipes as containers see it."""
        return f"{_CONTAINER_ROOT}/{self.resource}/pipe"


def thread_percentage(shares: Sequence[Share]) -> int:
    """
    Return the part of its devices' multiprocessors that a container with *shares* may use; no limit is 100.

    Raises:
        MpsError: the shares differ in compute, for which MPS has one number.
    """
    percents = {share.core_percent or NO_LIMIT_PERCENT for share in shares}
    if len(percents) > 1:
        each = ", ".join(f"{share.core_percent} % of {share.uuid}" for share in shares)
        raise MpsError(f"MPS has one limit of compute for all devices of a container, which was granted {each}")
    return min(percents)


def with_mps(grant: Grant, percent: int, daemon: MpsDaemon) -> Grant:
    """Return *grant* of a container that is a client of *daemon* and may use *percent* of the multiprocessors."""
    limit = {THREAD_PERCENTAGE: str(percent)} if percent < NO_LIMIT_PERCENT else {}
    return replace(
        grant,
        env=grant.env | {PIPE_DIRECTORY: daemon.pipe_in_container} | limit,
        mounts=(
            *grant.mounts,
            Mount(daemon.pipe_in_container, daemon.pipe, is_read_only=False),
            Mount(_SHARED_MEMORY, daemon.shared_memory, is_read_only=False),
        ),
    )
