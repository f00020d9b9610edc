"""
Add up what is offered, granted, used and throttled: by Node, by device, by Pod, by namespace.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.pod.amounts import SHAPES, shares_left
from kubectl_hami.values.cluster import ClusterState, Device, Node, Share

_MIG: Final = "mig"


@dataclass(frozen=True, slots=True)
class Row:
    """One Node, device, Pod or namespace. None means unknown."""

    cluster: str
    name: tuple[str, ...]
    """The cells that name it."""
    wide: tuple[str, ...]
    """Further cells, for those who want all."""
    shares: int
    offered_memory_mib: int
    granted_memory_mib: int
    used_memory_mib: int | None
    offered_core_percent: int
    granted_core_percent: int
    used_core_percent: float | None
    throttled_seconds: float | None
    state: str
    """The problem; empty if there is none."""


ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "name": lambda row: 0,
    "granted": lambda row: -row.granted_memory_mib,
    "used": lambda row: -(row.used_memory_mib or 0),
    "free": lambda row: row.granted_memory_mib - row.offered_memory_mib,
    "cores": lambda row: -row.granted_core_percent,
    "busy": lambda row: -(row.used_core_percent or 0),
    "throttled": lambda row: -(row.throttled_seconds or 0),
}
"""How rows can be sorted. Rows of equal rank stay in the order of names."""


def ordered(rows: Iterable[Row], order: str) -> list[Row]:
    """Return *rows* in an order of `ORDERS`."""
    return sorted(rows, key=ORDERS[order])


def node_rows(state: ClusterState) -> Iterator[Row]:
    """Yield a row for each Node."""
    for node in state.nodes:
        models = sorted({device.model for device in node.devices if device.model})
        name = (node.name, str(len(node.devices)))
        yield _row(state, name, (*_room(node), node.kind, ", ".join(models)), node.devices, _node_state(node))


def _room(node: Node) -> tuple[str, ...]:
    """
    Return how many more shares of each of SHAPES fit on *node*, and which part of its free memory is fragmented, in %.

    Fragmented is what is free on devices with shares: no Pod gets a whole device there. Devices in MIG mode have places
    instead and are left out.
    """
    counts, free_mib, fragmented_mib = Counter[str](), 0, 0
    for device in node.devices:
        offered = (device.replicas, device.memory_mib, device.core_percent)
        granted = (device.granted_replicas, device.granted_memory_mib, device.granted_core_percent)
        left = tuple(max(0, whole - taken) for whole, taken in zip(offered, granted, strict=True))
        if device.mode == _MIG or device.is_cordoned or not device.is_healthy or not left[0]:
            continue
        counts.update({shape: shares_left(parts, offered, left) for shape, parts in SHAPES.items()})
        free_mib += left[1]
        fragmented_mib += left[1] if device.granted_replicas else 0
    fragmented = f"{100 * fragmented_mib / free_mib:.0f}" if free_mib else "-"
    return (*(str(counts[shape]) for shape in SHAPES), fragmented)


def device_rows(state: ClusterState) -> Iterator[Row]:
    """Yield a row for each device."""
    for node in state.nodes:
        for device in node.devices:
            name = (node.name, _index(device), device.model or "-")
            sensors = (_rounded(device.temperature_celsius), _rounded(device.power_watts))
            yield _row(state, name, (*sensors, device.id, device.mode or "-"), (device,), _device_state(device))


def _row(
    state: ClusterState, name: tuple[str, ...], wide: tuple[str, ...], devices: Sequence[Device], problem: str
) -> Row:
    return Row(
        cluster=state.cluster,
        name=name,
        wide=wide,
        shares=sum(device.granted_replicas for device in devices),
        offered_memory_mib=sum(device.memory_mib for device in devices),
        granted_memory_mib=sum(device.granted_memory_mib for device in devices),
        used_memory_mib=_whole(device.used_memory_mib for device in devices),
        offered_core_percent=sum(device.core_percent for device in devices),
        granted_core_percent=sum(device.granted_core_percent for device in devices),
        used_core_percent=_sum(device.used_core_percent for device in devices),
        throttled_seconds=_sum(share.throttled_seconds for device in devices for share in device.shares),
        state=problem,
    )


def pod_rows(state: ClusterState) -> Iterator[Row]:
    """Yield a row for each Pod that holds a share, by namespace and name. Init containers that ended are left out."""
    pods: dict[tuple[str, str, str], list[tuple[Device, Share]]] = {}
    for device, share in _held(state):
        pods.setdefault((share.namespace, share.pod, device.node), []).append((device, share))
    for (namespace, pod, node_name), held in sorted(pods.items()):
        shares = [share for _, share in held]
        name = (namespace, pod, node_name, ",".join(sorted({_index(device) for device, _ in held})))
        wide = (" ".join(sorted({device.id for device, _ in held})),)
        yield _row_of_shares(state, name, wide, shares, _share_state(shares))


def namespace_rows(state: ClusterState) -> Iterator[Row]:
    """Yield a row for each namespace that holds a share or has a quota on one, by name."""
    shares: dict[str, list[Share]] = {}
    for _, share in _held(state):
        shares.setdefault(share.namespace, []).append(share)
    for namespace in state.namespaces:
        left = [f"{max(0, one.limit - one.held)} of {one.limit} {one.resource}" for one in namespace.quotas]
        name = (namespace.name, str(namespace.pods), ", ".join(left) or "-")
        full = [one.resource for one in namespace.quotas if one.held >= one.limit]
        problem = f"no {', no '.join(full)} left" if full else ""
        yield _row_of_shares(state, name, (), shares.get(namespace.name, []), problem)


def _held(state: ClusterState) -> Iterator[tuple[Device, Share]]:
    """Yield every share that counts now, with its device."""
    for node in state.nodes:
        for device in node.devices:
            yield from ((device, share) for share in device.shares if share.holds)


def _row_of_shares(
    state: ClusterState, name: tuple[str, ...], wide: tuple[str, ...], shares: Sequence[Share], problem: str
) -> Row:
    """Return the row of *shares*, which offer what they were granted."""
    return Row(
        cluster=state.cluster,
        name=name,
        wide=wide,
        shares=len(shares),
        offered_memory_mib=sum(share.memory_mib for share in shares),
        granted_memory_mib=sum(share.memory_mib for share in shares),
        used_memory_mib=_whole(share.used_memory_mib for share in shares),
        offered_core_percent=sum(share.core_percent for share in shares),
        granted_core_percent=sum(share.core_percent for share in shares),
        used_core_percent=_sum(share.used_core_percent for share in shares),
        throttled_seconds=_sum(share.throttled_seconds for share in shares),
        state=problem,
    )


def _rounded(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:.0f}"


def _index(device: Device) -> str:
    """Return the index of a device on its Node, `-` if no inventory lists it."""
    return str(device.index) if device.index >= 0 else "-"


def _node_state(node: Node) -> str:
    found = []
    if not node.is_ready:
        found.append("not ready")
    if node.is_cordoned:
        found.append("cordoned")
    unhealthy = sum(not device.is_healthy for device in node.devices)
    if unhealthy:
        found.append(f"{unhealthy} unhealthy")
    if not node.is_measured:
        found.append("use unknown")
    return ", ".join(found)


def _device_state(device: Device) -> str:
    if not device.replicas:
        return "no longer offered"
    found = [] if device.is_healthy else ["unhealthy"]
    if device.is_cordoned:
        found.append("cordoned")
    if device.granted_memory_mib > device.memory_mib:
        found.append("granted beyond its memory")
    return ", ".join(found)


def _share_state(shares: Iterable[Share]) -> str:
    is_above = any(share.used_memory_mib is not None and share.used_memory_mib > share.memory_mib for share in shares)
    return "above its grant" if is_above else ""


def _whole(amounts: Iterable[int | None]) -> int | None:
    found = _sum(amounts)
    return None if found is None else int(found)


def _sum(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of the known *amounts*, None if none is known."""
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
