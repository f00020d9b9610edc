"""
Put the whole picture of a cluster together: `state_of`.

The inventories of the Nodes say what is offered, the Pods' annotations what is granted, and the monitors what is used.
Neighbours: `shares` reads Pods, `waits` the Pods without a Node, `exposition` the metrics.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from hamicommon.config.device_config import DeviceConfig
from hamicommon.dra.names import DRA, node_kind
from hamicommon.model import Device as Offered
from hamicommon.model import Object
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_devices import decode_node_devices
from kubectl_hami.answer.claims import as_offered, claim_allocations, offered_by_claims
from kubectl_hami.answer.device_config import USUAL_NAMES, device_config
from kubectl_hami.answer.exposition import ScrapeError, samples
from kubectl_hami.answer.quotas import namespaces_of
from kubectl_hami.answer.shares import PodAllocation, allocations, is_ready
from kubectl_hami.answer.waits import waiting
from kubectl_hami.values.cluster import ClusterSnapshot, ClusterState, Device, Node, Share

_REGISTER: Final = re.compile(r"hami\.io/node-(register-.+|.+-register)")
"""The annotation with the inventory, of any vendor."""
_COUNTED: Final = frozenset(vendor.key for vendor in DeviceConfig().vendors() if not vendor.register_key)
"""Vendors whose devices a Node only counts. Only the granted ones of them are known."""
_MIB: Final = 2**20

_SHARE_VALUES: Final = {
    "hami_vgpu_memory_used_bytes": "used_memory_mib",
    "hami_vgpu_memory_limit_bytes": "limit_memory_mib",
    "hami_share_busy_ratio": "used_core_percent",
    "hami_share_throttled_seconds_total": "throttled_seconds",
    "hami_share_driver_memory_bytes": "driver_memory_mib",
}
_DEVICE_VALUES: Final = {
    "hami_host_gpu_memory_used_bytes": "used_memory_mib",
    "hami_host_gpu_utilization_ratio": "used_core_percent",
    "hami_device_temperature_celsius": "temperature_celsius",
    "hami_device_power_watts": "power_watts",
}
_FINDINGS: Final = "hami_monitor_watchdog_findings"
_SHARE_LABELS: Final = ("namespace", "pod", "container", "device_uuid")

Measured = dict[str, float]
"""Measured fields of a share or a device, by the name of the field."""


@dataclass(slots=True)
class _Use:
    """What one monitor measured."""

    devices: defaultdict[str, Measured] = field(default_factory=lambda: defaultdict(dict))
    shares: defaultdict[tuple[str, ...], Measured] = field(default_factory=lambda: defaultdict(dict))
    """By `_SHARE_LABELS`."""
    findings: defaultdict[tuple[str, ...], list[str]] = field(default_factory=lambda: defaultdict(list))
    """Likewise: the kinds of what the watchdog found."""


def state_of(cluster: ClusterSnapshot) -> ClusterState:
    """Return the whole picture of *cluster*."""
    problems = list(cluster.problems)
    uses = _uses(cluster.monitors, problems)
    by_node: defaultdict[str, list[PodAllocation]] = defaultdict(list)
    pools = offered_by_claims(cluster, problems)
    every = [*allocations(cluster.pods, problems), *claim_allocations(cluster, pools, problems)]
    for one in every:
        by_node[one.node].append(one)
    objects = {str((node.get("metadata") or {}).get("name") or ""): node for node in cluster.nodes}
    nodes = []
    for name in sorted(objects.keys() | by_node.keys()):
        offered = _inventory(objects.get(name, {}), name, problems)
        if node_kind(objects.get(name, {})) == DRA:
            offered = as_offered(offered, objects[name])
        if offered or name in by_node:
            node = objects.get(name, {}) if objects else None
            nodes.append(_node(name, node, offered, by_node[name], uses.get(name)))
    return ClusterState(
        cluster=cluster.name,
        taken_at=cluster.taken_at,
        nodes=tuple(nodes),
        waiting=waiting(cluster.pods, cluster.refusals, cluster.taken_at),
        namespaces=namespaces_of(every, cluster.quotas, device_config(cluster.config_maps) or USUAL_NAMES),
        problems=tuple(problems),
    )


def _inventory(node: Object, name: str, problems: list[str]) -> dict[str, Offered]:
    """Return the devices that *node* offers, by UUID; an unreadable annotation adds a problem."""
    found: dict[str, Offered] = {}
    for key, text in sorted(_annotations(node).items()):
        if _REGISTER.fullmatch(key):
            try:
                found.update({device.id: device for device in decode_node_devices(text)})
            except DecodeError as error:
                problems.append(f"Node {name}, {key}: {error}; its devices are left out")
    return found


def _node(
    name: str, node: Object | None, offered: Mapping[str, Offered], allocated: list[PodAllocation], use: _Use | None
) -> Node:
    """Return the Node *name*, whose object is *node*: empty if there is none, None if no Node could be read."""
    amounts: defaultdict[str, Amounts] = defaultdict(Amounts)
    shares: defaultdict[str, list[Share]] = defaultdict(list)
    vendors: dict[str, str] = {}
    for one in allocated:
        for uuid, taken in one.amounts.items():
            amounts[uuid] = amounts[uuid].plus(taken)
        for uuid, vendor, share in one.shares:
            vendors[uuid] = vendor
            shares[uuid].append(_measured_share(share, uuid, use))
    is_read, node = node is not None, node or {}
    cordoned = {uuid.strip() for uuid in _annotations(node).get(keys.NODE_CORDON, "").split(",")}
    devices = [
        _device(
            name,
            offered.get(uuid) or _unlisted(uuid, is_read and vendors.get(uuid, "") not in _COUNTED, amounts[uuid]),
            vendors.get(uuid, ""),
            uuid in cordoned,
            amounts.get(uuid, NOTHING),
            tuple(shares.get(uuid, ())),
            {} if use is None else use.devices.get(uuid, {}),
        )
        for uuid in offered.keys() | shares.keys()
    ]
    return Node(
        name=name,
        is_ready=is_ready(node) or not is_read,
        is_cordoned=bool((node.get("spec") or {}).get("unschedulable")),
        is_measured=use is not None,
        kind=node_kind(node),
        devices=tuple(sorted(devices, key=lambda device: (device.replicas == 0, device.index, device.id))),
    )


def _unlisted(uuid: str, is_gone: bool, granted: Amounts) -> Offered:
    """Return a device that no inventory lists: it is gone, or else only what is granted of it is known."""
    if not is_gone:
        return Offered(uuid, granted.replicas, granted.memory_mib, granted.core_percent, "", index=-1)
    return Offered(uuid, 0, 0, 0, "", index=-1, healthy=False)


def _device(
    node: str,
    offered: Offered,
    vendor: str,
    is_cordoned: bool,
    granted: Amounts,
    shares: tuple[Share, ...],
    use: Measured,
) -> Device:
    return Device(
        id=offered.id,
        node=node,
        index=offered.index,
        model=offered.type,
        vendor=vendor,
        mode=offered.mode,
        replicas=offered.count,
        memory_mib=offered.memory_mib,
        core_percent=offered.core_percent,
        is_healthy=offered.healthy,
        is_cordoned=is_cordoned,
        granted_replicas=granted.replicas,
        granted_memory_mib=granted.memory_mib,
        granted_core_percent=granted.core_percent,
        used_memory_mib=_mib(use.get("used_memory_mib")),
        used_core_percent=use.get("used_core_percent"),
        temperature_celsius=use.get("temperature_celsius"),
        power_watts=use.get("power_watts"),
        shares=shares,
    )


def _measured_share(share: Share, uuid: str, use: _Use | None) -> Share:
    key = (share.namespace, share.pod, share.container, uuid)
    found = {} if use is None else use.shares.get(key, {})
    ratio = found.get("used_core_percent")
    return replace(
        share,
        used_memory_mib=_mib(found.get("used_memory_mib")),
        limit_memory_mib=_mib(found.get("limit_memory_mib")),
        used_core_percent=None if ratio is None else ratio * 100,
        throttled_seconds=found.get("throttled_seconds"),
        driver_memory_mib=_mib(found.get("driver_memory_mib")),
        findings=() if use is None else tuple(sorted(use.findings.get(key, ()))),
    )


def _uses(monitors: Mapping[str, bytes], problems: list[str]) -> dict[str, _Use]:
    """Return what each monitor measured, by Node; a scrape that cannot be read adds a problem."""
    found = {}
    for node, scrape in monitors.items():
        try:
            read = samples(scrape, (*_SHARE_VALUES, *_DEVICE_VALUES, _FINDINGS))
        except ScrapeError as error:
            problems.append(f"Node {node}: the answer of its monitor {error}; its use is unknown")
            continue
        use = found[node] = _Use()
        for metric, name in _SHARE_VALUES.items():
            for labels, value in read[metric]:
                use.shares[_place(labels)][name] = value
        for labels, value in read[_FINDINGS]:
            if value:
                use.findings[_place(labels)].append(labels.get("kind", ""))
        for metric, name in _DEVICE_VALUES.items():
            for labels, value in read[metric]:
                use.devices[labels.get("device_uuid", "")][name] = value
    return found


def _place(labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in _SHARE_LABELS)


def _annotations(node: Object) -> Mapping[str, str]:
    return (node.get("metadata") or {}).get("annotations") or {}


def _mib(amount_bytes: float | None) -> int | None:
    return None if amount_bytes is None else round(amount_bytes / _MIB)
