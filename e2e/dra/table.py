"""
Which Nodes take which Pods: what the tests expect, and what the page shows.

Owns every expected outcome. The words of kube-scheduler are quoted as it writes them. Knows no cluster.
"""

from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """How a Pod says how much it needs."""

    SHARE = "share"
    """As written by users: `nvidia.com/gpu`, `nvidia.com/gpumem` and `nvidia.com/gpucores` in its limits."""
    WHOLE = "whole device"
    """As written by users: only `nvidia.com/gpu` in its limits. The webhook adds `nvidia.com/gpucores`, as HAMi's."""
    REWRITTEN = "rewritten"
    """As a webhook could leave either: only `nvidia.com/gpu` in its limits, and the amounts in an annotation."""


class Kind(StrEnum):
    """The state of a Node; also its name."""

    PLUGIN = "plugin"
    """Its device plugin runs: `nvidia.com/gpu` is more than 0."""
    STOPPED = "stopped"
    """Its device plugin does not run: `nvidia.com/gpu` is 0."""
    DRA = "dra"
    """It never had a device plugin, and has ResourceSlices of tokens."""
    MOVED = "moved"
    """It has ResourceSlices of tokens. Its kubelet still lists the resource of its former device plugin, with 0."""


BOUND = "bound"
"""The Pod is bound, without a claim."""
CLAIMED = "bound, claim"
"""The Pod is bound, and kube-scheduler made a claim for it."""
CANNOT_FIT = "cannot fit resource"
CANNOT_ALLOCATE = "cannot allocate all claims"
UNREGISTERED = "node unregistered"
"""Our scheduler's answer if the kubelet of a Node offers no replicas."""
UNREACHABLE = "extender unreachable"
"""kube-scheduler tries again and again, and counts this as an error, not as a decision."""


@dataclass(frozen=True, slots=True)
class Row:
    """Where Pods of one form can go after one history of DeviceClasses, if the extender accepts every Node."""

    history: str
    """A key of HISTORIES."""
    form: Form
    plugin: str
    stopped: str
    dra: str
    moved: str

    def outcome(self, kind: Kind) -> str:
        """Return what becomes of a Pod that may only go to the Node *kind*."""
        found: str = getattr(self, kind.value)
        return found

    def today(self, kind: Kind) -> str:
        """Return the same with our scheduler, which grants nothing on a Node without replicas."""
        found = self.outcome(kind)
        return UNREGISTERED if found in (BOUND, CLAIMED) and kind is not Kind.PLUGIN else found

    def without_extender(self, kind: Kind) -> str:
        """Return the same while no extender answers."""
        found = self.outcome(kind)
        return UNREACHABLE if found in (BOUND, CLAIMED) else found


OURS, NVIDIA, HAMI = "gpu.hami.io", "gpu.nvidia.com", "hami-core-gpu.project-hami.io"
"""The DeviceClasses, each named like the driver whose devices it selects. Every one maps `nvidia.com/gpu`."""

HISTORIES: dict[str, tuple[tuple[str, str], ...]] = {
    "none": (),
    "ours": (("create", OURS),),
    "NVIDIA's": (("create", NVIDIA),),
    "ours, then HAMi's": (("create", OURS), ("create", HAMI)),
    "HAMi's, then ours": (("create", HAMI), ("create", OURS)),
    "newer one deleted": (("create", OURS), ("create", HAMI), ("delete", HAMI)),
    "older one deleted": (("create", HAMI), ("create", OURS), ("delete", HAMI)),
    "older one deleted, ours updated": (("create", HAMI), ("create", OURS), ("delete", HAMI), ("update", OURS)),
}
"""What was done with DeviceClasses, in this order, a second apart."""

ROWS = (
    Row("none", Form.SHARE, BOUND, BOUND, BOUND, BOUND),
    Row("none", Form.WHOLE, BOUND, BOUND, BOUND, BOUND),
    Row("none", Form.REWRITTEN, BOUND, BOUND, BOUND, BOUND),
    Row("ours", Form.SHARE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("ours", Form.WHOLE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("ours", Form.REWRITTEN, BOUND, CANNOT_ALLOCATE, CLAIMED, CLAIMED),
    Row("NVIDIA's", Form.SHARE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CANNOT_ALLOCATE),
    Row("NVIDIA's", Form.WHOLE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CANNOT_ALLOCATE),
    Row("NVIDIA's", Form.REWRITTEN, BOUND, CANNOT_ALLOCATE, CANNOT_ALLOCATE, CANNOT_ALLOCATE),
    Row("ours, then HAMi's", Form.SHARE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CANNOT_ALLOCATE),
    Row("ours, then HAMi's", Form.WHOLE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CANNOT_ALLOCATE),
    Row("ours, then HAMi's", Form.REWRITTEN, BOUND, CANNOT_ALLOCATE, CANNOT_ALLOCATE, CANNOT_ALLOCATE),
    Row("HAMi's, then ours", Form.SHARE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("HAMi's, then ours", Form.WHOLE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("HAMi's, then ours", Form.REWRITTEN, BOUND, CANNOT_ALLOCATE, CLAIMED, CLAIMED),
    Row("newer one deleted", Form.SHARE, BOUND, BOUND, BOUND, BOUND),
    Row("newer one deleted", Form.WHOLE, BOUND, BOUND, BOUND, BOUND),
    Row("newer one deleted", Form.REWRITTEN, BOUND, BOUND, BOUND, BOUND),
    Row("older one deleted", Form.SHARE, BOUND, BOUND, BOUND, BOUND),
    Row("older one deleted", Form.WHOLE, BOUND, BOUND, BOUND, BOUND),
    Row("older one deleted", Form.REWRITTEN, BOUND, BOUND, BOUND, BOUND),
    Row("older one deleted, ours updated", Form.SHARE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("older one deleted, ours updated", Form.WHOLE, BOUND, CANNOT_ALLOCATE, CANNOT_FIT, CLAIMED),
    Row("older one deleted, ours updated", Form.REWRITTEN, BOUND, CANNOT_ALLOCATE, CLAIMED, CLAIMED),
)
