"""
Why a Node or a device refuses: HAMi's codes, and the `FailedNodes` texts built from them.

The text is HAMi's `n/m Code`: how many devices refuse for which reason. It must never name an amount:
kube-scheduler writes the text into the Pod's status and asks again whenever it differs, and amounts change with every
grant. Neighbours: `fit` and `place_pod` return reasons, `wording` has sentences with amounts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache


class Reason(StrEnum):
    """
    One reason a device, or a whole Node, cannot take a share. The later it is here, the closer to fitting.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/common/common.go
    """

    WITHHELD = "CardWithheld"
    """Not HAMi's: a search keeps the device for a later container of the Pod. No answer has this reason."""
    NODE_UNREGISTERED = "node unregistered"
    """The Node offers no device at all, or is unknown."""
    SILENT = "DevicePluginNotRunning"
    """Ours: the Node lists devices, and its kubelet offers none of their resource."""
    CLAIMS_ONLY = "NodeGivesResourceClaims"
    """Ours: the Node gives devices by ResourceClaims, and the Pod asks for them by resources."""
    PREPARED_ELSEWHERE = "PodNamesResourceClaim"
    """Ours: the Pod names a ResourceClaim for its devices, and the Node has a device plugin, which prepares none."""
    SECOND_CLAIM = "PodHasResourceClaims"
    """Ours: the Pod has ResourceClaims of its own, and kube-scheduler cannot bind it to a Node with a device plugin."""
    ONE_REQUEST = "InitContainerSharesRequest"
    """Ours: a claim would have one request for an init container and a later one, which get different shares."""
    NODE_DEVICES = "NodeInsufficientDevice"
    """The Node has fewer devices of the vendor than asked, used or not."""
    UNHEALTHY = "CardNotHealth"
    SICK = "CardUnhealthy"
    """MetaX's code for a device that is not healthy."""
    CORDONED = "CardCordoned"
    TYPE = "CardTypeMismatch"
    MODE = "ModeNotFit"
    """The device, or its Node, cannot be shared in the way the Pod asks."""
    UUID = "CardUuidMismatch"
    OTHER_DEVICE = "CardNotFoundCustomFilterRule"
    """An earlier container of the Pod has another device, and the vendor requires one for all."""
    APP_CLASS = "CardAppClassMismatch"
    QOS = "CardQosPolicyMismatch"
    REPLICAS = "CardTimeSlicingExhausted"
    KUBELET = "KubeletReplicasExhausted"
    """Ours: by the Pods on the Node, its kubelet has too few healthy replicas left, or it rejected one lately."""
    EXCLUSIVE = "ExclusiveDeviceAllocateConflict"
    QUOTA = "ResourceQuotaNotFit"
    MEMORY = "CardInsufficientMemory"
    CORE = "CardInsufficientCore"
    ZERO_CORE = "CardComputeUnitsExhausted"
    MIG = "CardMigTopologyInfeasible"
    COUNT = "AllocatedCardsInsufficientRequest"
    """Some devices are acceptable, fewer than asked."""
    NUMA = "NumaNotFit"


_ANSWERS = {
    Reason.SILENT: Reason.NODE_UNREGISTERED,
    Reason.CLAIMS_ONLY: "node gives devices by ResourceClaims",
    Reason.PREPARED_ELSEWHERE: "Pod names a ResourceClaim, which a device plugin does not prepare",
    Reason.SECOND_CLAIM: "Pod has ResourceClaims, so kube-scheduler cannot bind it to a node with a device plugin",
    Reason.ONE_REQUEST: "a claim has one request for an init container and a later one",
    Reason.KUBELET: Reason.NODE_DEVICES,
}
"""What an answer has for reasons of ours: HAMi's closest code, or a sentence where HAMi has no such Nodes."""
PUBLIC_REASONS = tuple(reason for reason in Reason if reason is not Reason.WITHHELD)
"""Every reason an answer can have."""
_RANKS = {reason: rank for rank, reason in enumerate(Reason)}


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why one Node cannot take a Pod: how many of its devices are refused for which reason."""

    counts: tuple[tuple[Reason, int], ...]
    """Devices refused per reason; one entry with 0 if the Node as a whole is refused."""
    device_count: int = 0
    """Devices of the vendor asked for."""
    parts: tuple["Misfit", ...] = ()
    """The refusal of each vendor, if a container asks several and more than one refuses."""
    vendor: str = field(default="", compare=False)
    """Who refuses, of `parts` the one with the cause; empty if the Node offers nothing at all."""
    reasons: tuple[Reason, ...] = field(init=False, compare=False)
    """The distinct reasons, sorted."""
    cause: Reason = field(init=False, compare=False)
    """The reason that comes closest to fitting: what a person would have to change."""
    text: str = field(init=False, compare=False)
    """
    The `FailedNodes` value: `n/m Code` joined by `, `, sorted as text.

    >>> Misfit(((Reason.MEMORY, 3), (Reason.COUNT, 1)), 4).text
    '1/4 AllocatedCardsInsufficientRequest, 3/4 CardInsufficientMemory'
    >>> Misfit.of_node(Reason.NODE_DEVICES).text
    'NodeInsufficientDevice'
    """

    def __post_init__(self) -> None:
        """Build the text once; the same misfit is returned for many Nodes."""
        reasons = tuple(sorted(reason for reason, _ in self.counts))
        if self.parts:
            texts = sorted({part.text for part in self.parts})
        elif self.device_count:
            texts = sorted(f"{n}/{self.device_count} {code}" for code, n in self.counts)
        else:
            texts = [_ANSWERS.get(reason, reason) for reason in reasons]
        object.__setattr__(self, "reasons", reasons)
        object.__setattr__(self, "cause", max(reasons, key=_RANKS.__getitem__, default=Reason.NODE_DEVICES))
        if self.parts:
            vendor = next(part.vendor for part in self.parts if self.cause in part.reasons)
            object.__setattr__(self, "vendor", vendor)
        object.__setattr__(self, "text", ", ".join(texts))

    @classmethod
    def of_node(cls, reason: Reason, vendor: str = "") -> "Misfit":
        """Return the refusal of a whole Node."""
        return cls(((reason, 0),), vendor=vendor)

    @classmethod
    def of_all(cls, misfits: Sequence["Misfit"]) -> "Misfit":
        """
        Return the refusal by one or more vendors.

        >>> Misfit.of_all([Misfit(((Reason.MEMORY, 2),), 2), Misfit.of_node(Reason.NODE_DEVICES)]).text
        '2/2 CardInsufficientMemory, NodeInsufficientDevice'
        """
        if len(misfits) == 1:
            return misfits[0]
        counts: Counter[Reason] = Counter()
        for misfit in misfits:
            counts.update(dict(misfit.counts))
        return cls(tuple(counts.items()), sum(misfit.device_count for misfit in misfits), tuple(misfits))

    @classmethod
    def of_devices(cls, counts: Counter[Reason], device_count: int, vendor: str = "") -> "Misfit":
        """Return the refusal of a Node by its devices of *vendor*; reasons without a device are left out."""
        return _same(tuple(sorted((reason, count) for reason, count in counts.items() if count)), device_count, vendor)


@lru_cache(maxsize=1024)
def _same(counts: tuple[tuple[Reason, int], ...], device_count: int, vendor: str) -> Misfit:
    """Return the shared Misfit of *counts*: most Nodes of a cluster refuse in one of a few ways."""
    return Misfit(counts, device_count, vendor=vendor)


@dataclass(frozen=True)
class Refusal:
    """Why some Nodes cannot take a Pod. What follows from it is computed once."""

    misfits: Mapping[str, Misfit] = field(default_factory=dict)
    """Per Node name."""

    @cached_property
    def failed_nodes(self) -> dict[str, str]:
        """The `FailedNodes` of the answer."""
        return {name: misfit.text for name, misfit in self.misfits.items()}

    @cached_property
    def kind(self) -> str:
        """A text that is equal for refusals by the same reasons, whatever the numbers."""
        return ",".join(sorted({reason for misfit in self.misfits.values() for reason in misfit.reasons}))

    @cached_property
    def leading_cause(self) -> Reason:
        """The cause that `wording.summary` names first; NODE_UNREGISTERED without a Node."""
        counts = Counter(misfit.cause for misfit in self.misfits.values())
        return min(counts, key=lambda cause: (-counts[cause], cause), default=Reason.NODE_UNREGISTERED)
