"""
Which container owns each list of shares in an allocation annotation.

The writers differ in what they count as a container:

| written by | one list for | init containers |
|---|---|---|
| HAMi up to 2.5 | each app container, or only each with devices | none, also if they ask |
| HAMi 2.6 to 2.8 | each app container | none, also if they ask |
| HAMi 2.9, 2.10, and this project | each container, init containers first | like the others |
| HAMi 2.10, if the device's model differs from the vendor's key (#2899) | each container that asks | like the others |

The number of lists tells them apart, together with what the containers ask. If they contradict each other, a list
belongs to an app container. Such a list counts until the Pod ends, beside all others, so that nothing it may hold is
granted twice. Neighbours: `hamicommon.wire.pod_devices` decodes the annotation.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hamicommon.model import ContainerShares, PodShares
from hamicommon.pod.containers import ContainerKind
from hamicommon.wire.quantity import QuantityError, parse_quantity

Asking = Callable[[], Sequence[bool]]
"""Returns which containers of a Pod ask the vendor for devices, in Pod order."""

_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "hami.io/vgpu-devices-allocated": ("nvidia.com/gpu",),
    "hami.io/cambricon-mlu-devices-allocated": ("cambricon.com/vmlu",),
    "hami.io/dcu-devices-allocated": ("hygon.com/dcunum",),
    "hami.io/mthreads-vgpu-devices-allocated": ("mthreads.com/vgpu",),
    "hami.io/metax-gpu-devices-allocated": ("metax-tech.com/gpu",),
    "hami.io/metax-sgpu-devices-allocated": ("metax-tech.com/sgpu",),
    "hami.io/enflame-gcu-devices-allocated": ("enflame.com/gcu",),
    "hami.io/enflame-vgpu-devices-allocated": ("enflame.com/drs-gcu",),
    "hami.io/kunlun-allocated": ("kunlunxin.com/xpu",),
    "hami.io/xpu-devices-allocated": ("kunlunxin.com/vxpu",),
    "hami.io/aws-neuron-devices-allocated": ("aws.amazon.com/neuron", "aws.amazon.com/neuroncore"),
    "hami.io/amd-devices-allocated": ("amd.com/gpu",),
    "hami.io/Vastai-devices-allocated": ("vastaitech.com/va",),
    "hami.io/Biren-devices-allocated": ("birentech.com/gpu",),
}
"""The resources that ask for devices, by the annotation with their grants, as HAMi's chart names them."""
_CHIP: Final = re.compile(r"hami\.io/(.+)-devices-allocated")
"""The annotation of a vendor with several chips; their resources are named after the chip."""


@dataclass(frozen=True, slots=True)
class Granted:
    """What one vendor granted to the containers of a Pod."""

    shares: PodShares
    """Exactly one entry per container, in Pod order."""
    owners: Mapping[int, int]
    """The position of the container that owns a list, by the place of the list in the annotation; no empty lists."""

    def owner(self, place: int) -> int:
        """
        Return the position of the container that the annotation means by *place*.

        HAMi counts the places of MIG instances as it counts the lists. Without a list the place is the position.
        """
        return self.owners.get(place, place)


class HasKind(Protocol):
    """A container of a Pod."""

    @property
    def kind(self) -> ContainerKind: ...


def granted(lists: PodShares, containers: Sequence[HasKind], asking: Asking) -> Granted:
    """
    Return what *containers* own of *lists*, a decoded annotation. No list is left out.

    *asking* is called only if the number of lists does not tell.
    """
    owners = _owners(lists, containers, asking) if containers else {}
    if all(place == owner for place, owner in owners.items()):
        held = lists[: len(containers)]
        return Granted((*held, *((),) * (len(containers) - len(held))), owners)
    shares: list[ContainerShares] = [()] * len(containers)
    for place, owner in owners.items():
        shares[owner] += lists[place]
    return Granted(tuple(shares), owners)


def _owners(lists: PodShares, containers: Sequence[HasKind], asking: Asking) -> dict[int, int]:
    places = [place for place, shares in enumerate(lists) if shares]
    count = len(lists) - (not lists[-1]) if lists else 0  # A text that ends in `;` has an empty list behind it.
    if count == len(containers) or not places:
        return {place: place for place in places}
    apps = [position for position, one in enumerate(containers) if one.kind is ContainerKind.APP] or [
        len(containers) - 1
    ]
    asks = asking()
    everyone = [position for position, does_ask in enumerate(asks) if does_ask]
    for holders in (everyone, [position for position in apps if asks[position]]):
        if len(holders) == len(places):
            return dict(zip(places, holders, strict=True))
    if count > len(containers) > places[-1]:  # A plugin of HAMi adds a `;` each time it writes what is left.
        return {place: place for place in places}
    if count == len(apps):
        return {place: apps[place] for place in places}
    return {place: apps[min(number, len(apps) - 1)] for number, place in enumerate(places)}


def usually_asking(allocated_key: str, containers: Iterable[Mapping[str, Any]]) -> list[bool]:
    """
    Return which of *containers* ask for the devices granted in *allocated_key*, for a reader without the device config.

    They name one of the resources that HAMi's chart has for them. If none does, the cluster has other names, and any
    extended resource counts.

    >>> network, gpu = ({"resources": {"limits": {name: 1}}} for name in ("rdma/hca", "nvidia.com/gpu"))
    >>> usually_asking("hami.io/vgpu-devices-allocated", [network, gpu, {}])
    [False, True, False]
    >>> usually_asking("hami.io/Ascend910A-devices-allocated", [network, gpu, {}])
    [True, True, False]
    """
    asked = [extended_resources(container) for container in containers]
    chip = _CHIP.fullmatch(allocated_key)
    names = _USUAL.get(allocated_key) or ((f"huawei.com/{chip[1]}", f"iluvatar.ai/{chip[1]}-vgpu") if chip else ())
    exact = [not amounts.keys().isdisjoint(names) for amounts in asked]
    return exact if any(exact) else [bool(amounts) for amounts in asked]


def extended_resources(container: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the extended resources that *container* limits or requests, above 0.

    An extended resource has a domain that is not Kubernetes' own. A limit is preferred to a request.
    """
    resources = container.get("resources") or {}
    amounts = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: str(amount) for name, amount in amounts.items() if _is_extended(name) and _is_positive(amount)}


def _is_extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _is_positive(amount: Any) -> bool:
    try:
        return parse_quantity(amount) > 0
    except QuantityError:
        return False
