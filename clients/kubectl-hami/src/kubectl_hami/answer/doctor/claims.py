"""
What a Node that gives its devices by ResourceClaims must have.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from hamicommon.dra.names import DRA, OCCUPIED_TAINT, node_kind
from hamicommon.dra.slices import Pool, read_slices
from hamicommon.model import Object
from hamicommon.vendors.nvidia import KEY as NVIDIA
from hamicommon.wire.quantity import whole
from kubectl_hami.answer.device_config import USUAL_NAMES, device_config
from kubectl_hami.answer.doctor.readings import Answer, bad, doubtful, good, minor_of, named, unknown
from kubectl_hami.answer.state import state_of
from kubectl_hami.values.cluster import ClusterSnapshot
from kubectl_hami.values.diagnosis import Examined

SINCE_MINOR: Final = 36
"""Kubernetes 1.36 is the first whose claims share a device."""
_LOG: Final = "the log of the device plugin there says why"


def claims(examined: Examined) -> Answer:
    """Check that what Nodes give by ResourceClaims is offered so, completely, and in no other way."""
    if not examined.cluster.nodes:
        return unknown("no Node can be read", "ask for get and list on nodes")
    claiming = [node for node in examined.cluster.nodes if node_kind(node) == DRA]
    if not claiming:
        return good("no Node gives devices by ResourceClaims")
    found = _too_old(examined, claiming) or _twice(examined, claiming)
    if found:
        return found
    if examined.cluster.slices is None:
        return unknown("no ResourceSlice can be read", "ask for get and list on resourceslices in resource.k8s.io")
    offered, problems = read_slices(examined.cluster.slices)
    if problems:
        return bad(f"kube-scheduler cannot use what is offered: {problems[0]}", f"delete it; {_LOG}")
    return _incomplete(examined.cluster, [_name(node) for node in claiming], offered)


def _too_old(examined: Examined, claiming: Sequence[Object]) -> Answer | None:
    minor = minor_of(str(examined.version.get("minor") or ""))
    fix = f"upgrade Kubernetes to 1.{SINCE_MINOR}, or serve these Nodes with --node-kind=plugin"
    if minor is not None and minor < SINCE_MINOR:
        return bad(f"this is Kubernetes 1.{minor}: devices are shared by claims since 1.{SINCE_MINOR}", fix)
    kubelets = {_name(node): ((node.get("status") or {}).get("nodeInfo") or {}) for node in claiming}
    minors = {name: minor_of(str(info.get("kubeletVersion") or "")) for name, info in kubelets.items()}
    old = sorted(name for name, known in minors.items() if known is not None and known < SINCE_MINOR)
    return bad(f"kubelets older than 1.{SINCE_MINOR} prepare no shared devices, on {named(old)}", fix) if old else None


def _twice(examined: Examined, claiming: Sequence[Object]) -> Answer | None:
    """Return what is wrong if a Node offers its devices in both ways, which have different ledgers."""
    config = device_config(examined.config_maps) or USUAL_NAMES
    resource = next(vendor.resource_names[0] for vendor in config.vendors() if vendor.key == NVIDIA)
    counted = {_name(node): (node.get("status") or {}).get("allocatable") or {} for node in claiming}
    twice = sorted(name for name, amounts in counted.items() if (whole(amounts.get(resource, "0")) or 0) > 0)
    if not twice:
        return None
    fix = f"stop the other device plugin on {twice[0]}: two ledgers promise one device twice"
    return bad(f"devices are offered by claims and as {resource}, on {named(twice)}", fix)


def _incomplete(cluster: ClusterSnapshot, claiming: Sequence[str], offered: Mapping[str, Pool]) -> Answer:
    """Return what of the inventories is not offered, or takes no new claims."""
    without = sorted(name for name in claiming if name not in offered)
    if without:
        return bad(f"no complete ResourceSlice offers the devices of {named(without)}", _LOG)
    listed = {node.name: node.devices for node in state_of(cluster).nodes}
    uuids = {name: {each.device.id for each in offered[name].values()} for name in claiming}
    lacking = [
        f"{device.id} on {name}"
        for name in claiming
        for device in listed.get(name, ())
        if device.replicas and device.id not in uuids[name]
    ]
    if lacking:
        return bad(f"in no ResourceSlice: {named(lacking)}", _LOG)
    closed = [
        f"{each.device.id} on {name} ({', '.join(taints)})"
        for name in claiming
        for each in offered[name].values()
        if (taints := [taint for taint in each.taints if taint != OCCUPIED_TAINT])
    ]
    if closed:
        unique = list(dict.fromkeys(closed))  # All instances of a GPU have its taints.
        return doubtful(f"takes no new claims: {named(unique)}", "docs/when-a-card-fails.md says what to do")
    return good(f"{sum(map(len, uuids.values()))} devices are offered by claims on {len(claiming)} Nodes")


def _name(node: Object) -> str:
    return str((node.get("metadata") or {}).get("name"))
