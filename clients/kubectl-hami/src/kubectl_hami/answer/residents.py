"""
Who is on a device or a Node, and how they are moved away.

A Pod is evicted, not deleted: an eviction heeds the budgets of its owner. Neighbours: the command `pods` prints this.
"""

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import orjson

from hamicommon.model import Object
from hamicommon.wire import keys
from kubectl_hami.answer.pods import owner_of
from kubectl_hami.answer.shares import name_of
from kubectl_hami.values.cluster import ClusterState, Device, Node, Share

_STAYS: Final = "DaemonSet"
"""Its controller creates the Pod again on the same Node."""


@dataclass(frozen=True, slots=True)
class Resident:
    """One share on a device."""

    node: str
    device: str
    index: int
    owner: str
    """Who made the Pod, such as `Deployment/web`; empty if it was made alone, or nobody knows."""
    share: Share


@dataclass(frozen=True, slots=True)
class Place:
    """Who is on a device or a Node of one cluster."""

    cluster: str
    residents: tuple[Resident, ...]
    moves: tuple[str, ...]
    """Commands for a shell that keep new Pods out and move these away, in order."""


def place(state: ClusterState, pods: Iterable[Object], name: str) -> Place | None:
    """Return who is on *name* and how they are moved; None if the cluster has no such Node or device."""
    node, devices = next(_places(state, name), (None, ()))
    if node is None:
        return None
    owners = {name_of(pod): owner_of(pod) for pod in pods}
    residents = tuple(
        Resident(node.name, device.id, device.index, owners.get((share.namespace, share.pod), ""), share)
        for device in devices
        for share in device.shares
        if share.holds
    )
    cordon = _cordon_node(node) if name == node.name else _cordon_device(node, devices[0])
    return Place(state.cluster, residents, (cordon, *_evictions(residents)))


def _places(state: ClusterState, name: str) -> Iterator[tuple[Node, tuple[Device, ...]]]:
    """Yield the Node called *name* with its devices, or the device of this UUID, or of this `NODE/INDEX`."""
    for node in state.nodes:
        devices = tuple(one for one in node.devices if name in {node.name, one.id, f"{node.name}/{one.index}"})
        if name == node.name or devices:
            yield node, devices


def _cordon_node(node: Node) -> str:
    return shlex.join(("kubectl", "cordon", node.name))


def _cordon_device(node: Node, device: Device) -> str:
    """Return the command that keeps new Pods from a device, beside those that are kept out already."""
    uuids = sorted({device.id, *(one.id for one in node.devices if one.is_cordoned)})
    closed = f"{keys.NODE_CORDON}={','.join(uuids)}"
    return shlex.join(("kubectl", "annotate", "--overwrite", "node", node.name, closed))


def _evictions(residents: Iterable[Resident]) -> Iterator[str]:
    """Yield a command for each Pod, those that come back elsewhere first."""
    pods = {(one.share.namespace, one.share.pod): one.owner for one in residents}
    for (namespace, pod), owner in sorted(pods.items(), key=lambda item: (_rank(item[1]), item[0])):
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/eviction"
        metadata = {"namespace": namespace, "name": pod}
        body = orjson.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}).decode()
        create = shlex.join(("kubectl", "create", "--raw", path, "-f", "-"))
        yield f"{shlex.join(('echo', body))} | {create}  # {_fate(owner)}"


def _rank(owner: str) -> int:
    return 2 if not owner else 1 if owner.startswith(f"{_STAYS}/") else 0


def _fate(owner: str) -> str:
    if not owner:
        return "no owner is known: nothing may create it again"
    if owner.startswith(f"{_STAYS}/"):
        return f"{owner} creates it again on this Node"
    return f"{owner} creates it again"
