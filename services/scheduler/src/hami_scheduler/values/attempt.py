"""
One container's request for devices of one Node, while it is tried, and the shares it could get.

Neighbours: `search.place_container` makes attempts, the functions of a vendor judge them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.reasons import Misfit, Reason
from hamicommon.model import MigPlacement, MigProfile, Request, Share


@dataclass(frozen=True, slots=True)
class MigChoice:
    """One MIG instance to be made."""

    profile: MigProfile
    placement: MigPlacement


@dataclass(frozen=True, slots=True)
class ShareOption:
    """A share that one device can give."""

    use: DeviceUse
    share: Share
    replicas: int = 1
    instance: MigChoice | None = None

    @property
    def uuid(self) -> str:
        """The device."""
        return self.share.uuid


@dataclass(frozen=True, slots=True)
class Attempt:
    """One container's request for the devices one vendor has on one Node, while it is tried."""

    request: Request
    constraints: Constraints
    candidates: Sequence[DeviceUse]
    """The vendor's devices in the order of the policy; the last is tried first."""
    earlier: frozenset[str] = frozenset()
    """UUIDs that earlier containers took: of an app container earlier app containers, else earlier init containers."""
    pair_scores: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


Check = Callable[[DeviceUse, Attempt], Reason | None]
"""Why a device cannot take the share of an attempt, None if it can."""
Options = Sequence[ShareOption]
Refusals = Mapping[Reason, int]
"""Number of devices refused per reason."""
Chooser = Callable[[Attempt, Options, Refusals], Options | Misfit | None]
"""
Chooses which of the options, in the order they were tried, the container gets; None if they are too few.

It also gets the refusals, so that it can return a refusal itself.
"""
