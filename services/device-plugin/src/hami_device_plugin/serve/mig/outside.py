"""
What `instances` needs of the outside: the driver, the journal, the API server, the kubelet, the prepared claims.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.mig.claims import Claims
from hami_device_plugin.decide.mig.geometry import Gpu, GpuProfile, Instance, MigMode
from hami_device_plugin.decide.mig.journal import Journal, Owner
from hamicommon.model import MigPlacement
from hamicommon.pod.reading import Pod


class MigDriver(Protocol):
    """What the driver does; every method raises `HamiError` if it fails."""

    async def read_gpus(self) -> tuple[Gpu, ...]:
        """Return every GPU that answers."""

    def clients(self) -> str:
        """Name the other processes that have the driver open, as far as they are seen."""

    async def switch_on(self, gpu_uuid: str) -> MigMode:
        """Switch MIG on, and return the mode afterwards."""

    async def create(self, gpu_uuid: str, profile: GpuProfile, placement: MigPlacement) -> Instance:
        """Create an instance, or nothing."""

    async def destroy(self, gpu_uuid: str, gpu_instance_id: int) -> None:
        """Destroy an instance; it may be gone already."""


class JournalStore(Protocol):
    """Where the journal is kept; every method raises `HamiError` if it fails."""

    def held(self) -> AbstractAsyncContextManager[None]:
        """Keep other plugins from the journal and from instances during a block."""

    def read(self) -> Journal:
        """Return the journal of this boot."""

    def write(self, journal: Journal) -> None:
        """Replace it."""


class MigPods(Protocol):
    """The Pods of the Node and its annotations at the API server; every method raises `HamiError` if it fails."""

    @property
    def pods(self) -> Mapping[str, Pod]:
        """Every Pod bound to this Node, as last seen, by UID."""

    async def has_ended(self, uid: str, namespace: str, name: str) -> bool:
        """Ask the API server whether a Pod is gone or has ended."""

    async def change_mig_allocations(self, pod: Pod, change: Callable[[str], str]) -> None:
        """Apply *change* to the MIG annotation of *pod*, on the version that was read."""

    async def announce_mig_change(self, reason: str | None) -> None:
        """Tell the Node's other NVML clients why they must let go of the driver; None: they need not any more."""


class OtherOwners(Protocol):
    """The prepared ResourceClaims of the Node."""

    def added_to(self, claims: Claims) -> Claims:
        """Return *claims* and what prepared ResourceClaims have."""

    async def is_over(self, owner: Owner) -> bool:
        """Ask the API server whether a ResourceClaim is gone or not allocated; False if that is unknown."""


class Allocations(Protocol):
    """What the kubelet has given to containers."""

    def entries(self) -> Sequence[Allocated]:
        """Return it. Raises: HamiError."""
