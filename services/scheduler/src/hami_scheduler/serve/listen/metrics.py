"""
The metrics: HAMi's names for devices and Pods, and our own for the scheduler.

Owns names, labels and units. Numbers of the cluster are read from the ledger at each scrape. Neighbours: `cluster`
holds the numbers.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/scheduler/metrics.go
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hami_scheduler import __version__
from hami_scheduler.rules.mig import MODE
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import Int64s, above_capacity
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.grant import sums_by_container
from hami_scheduler.values.reasons import PUBLIC_REASONS, Reason
from hamicommon.model import Device
from hamicommon.pod.amounts import SHAPES, shares_left
from hamicommon.runtime.serving.build import build_family
from hamicommon.runtime.serving.samples import PAUSE

_MIB = 1024 * 1024
_ZONE = "zone"
"""A label of all of HAMi's families."""
_DEVICE = ("node", "device_uuid", "device_index", "device_type")
_OLD_LABELS = {"node": "nodeid", "device_index": "deviceidx"}
"""The labels of devices that were renamed by more than their `_`."""
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

_GRANTS_AT_ONCE = 50
"""Pods or samples between two pauses of a scrape."""

_OUTCOMES = {
    "filter": ("ok", "refused", "error"),
    "bind": ("ok", "error"),
    "prioritize": ("ok", "error"),
    "preempt": ("ok", "refused", "error"),
}
"""The outcomes of each verb."""

Units = Mapping[str, Callable[[Any], Any]]
"""Vendor keys whose compute is not a percentage, with a function from an amount to parts of a device."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers that are not in the cluster."""

    reflectors: Callable[[], dict[str, tuple[float, int]]]
    """Per collection: seconds since the last message of the API server, and lists after the first."""
    events_lost: Callable[[], int]
    sampled_filters: Callable[[], int] = lambda: 0
    is_leader: Callable[[], bool] = lambda: True
    waiting: Callable[[], tuple[int, float]] = lambda: (0, 0.0)
    """Refused Pods that wait, and since how many seconds the oldest exists."""
    unfenced: Callable[[], int] = lambda: 0
    """Waiting Pods that an earlier scheduler may still bind."""


def verb_times(registry: CollectorRegistry) -> Callable[[str, float, str], None]:
    """Return what is called with verb, seconds and outcome of each call."""
    times = {
        verb: Histogram(
            f"hami_scheduler_{verb}_seconds",
            f"Time to answer a call of {verb}.",
            ["outcome"],
            buckets=_SECONDS,
            registry=registry,
        )
        for verb in _OUTCOMES
    }
    # Each outcome has a series from the start, so that rates are right.
    series = {(verb, outcome): times[verb].labels(outcome) for verb in times for outcome in _OUTCOMES[verb]}
    return lambda verb, seconds, outcome: series[verb, outcome].observe(seconds)


class Counters:
    """What is counted as it happens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.problems = Counter(
            "hami_scheduler_contained_problems",
            "Parts of Nodes and Pods that could not be used.",
            ["kind", "key"],
            registry=registry,
        )
        self.woken = Counter(
            "hami_scheduler_woken_pods",
            "Refused Pods woken because they fit and kube-scheduler had not asked again.",
            registry=registry,
        )
        refused = Counter(
            "hami_scheduler_refused_filters",
            "Filters that found no Node, by the reason that most Nodes gave.",
            ["reason"],
            registry=registry,
        )
        # Each reason has a series from the start, so that rates are right.
        self._refused: dict[Reason, Counter] = {reason: refused.labels(reason.value) for reason in PUBLIC_REASONS}

    def refused_filter(self, reason: Reason) -> None:
        """Count one filter that found no Node, mostly for *reason*."""
        self._refused[reason].inc()


class ClusterCollector(Collector):
    """The numbers of the cluster, read at scrape time."""

    def __init__(
        self, cluster: Callable[[], Cluster], observed: Observed, *, has_legacy_names: bool, device_limit: float
    ) -> None:
        """
        Read what *cluster* returns; with *has_legacy_names* also under HAMi's names of 2.8 and before.

        Devices and shares have their own series up to *device_limit* devices.
        """
        self._current = cluster
        self._observed = observed
        self._has_legacy_names = has_legacy_names
        self._device_limit = device_limit

    @property
    def _cluster(self) -> Cluster:
        return self._current()

    def collect(self) -> Iterator[Metric]:
        """Yield every family. Those of the cluster come only from the leader, so that a sum over replicas is right."""
        if self._observed.is_leader():
            yield from self._cluster_families()
        yield from self._own_families()

    def _cluster_families(self) -> Iterator[Metric]:
        """Yield what the cluster offers and what is granted."""
        yield from self._type_families()
        yield GaugeMetricFamily(
            "hami_scheduler_devices_above_capacity",
            "Devices of which more is granted than they offer.",
            value=len(above_capacity(self._cluster.ledger, self._cluster.vendors)),
        )
        has_devices = np.count_nonzero(self._cluster.ledger.has_device) <= self._device_limit
        if has_devices:
            yield from self._device_families()
            yield from self._pod_families()
            yield from self._claim_families()
            yield from self._mig_families()
        yield GaugeMetricFamily(
            "hami_scheduler_device_series", "1 while each device and share has its own series.", float(has_devices)
        )
        yield from self._quota_families()

    def _type_families(self) -> Iterator[Metric]:
        """Yield sums over all devices of a type; their number does not grow with the cluster."""
        ledger = self._cluster.ledger
        rows = np.flatnonzero(ledger.has_device)
        kind_of_row, count = ledger.kind_of_row[rows], len(ledger.kinds)
        families = {
            "devices": _by_type("devices", "Devices, healthy and not cordoned (open) or not (closed).", "state"),
            "shares": _by_type("shares", "Shares offered and granted.", "part"),
            "memory_bytes": _by_type("memory_bytes", "Memory offered and granted.", "part"),
            "core_ratio": _by_type("core_ratio", "Compute offered and granted, 100 is one device.", "part"),
            "free_shares": _by_type("free_shares", "Shares that still fit, by their part of a device.", "shape"),
            "free_memory_bytes": _by_type(
                "free_memory_bytes", "Memory not granted, on idle devices and, fragmented, on shared ones.", "on"
            ),
        }
        is_open = ledger.is_open[rows]
        sums = {
            ("devices", state): np.bincount(kind_of_row[mask], minlength=count)
            for state, mask in (("open", is_open), ("closed", ~is_open))
        }
        for part, amounts in (("offered", ledger.capacity), ("granted", ledger.promised)):
            of_rows = amounts[rows]
            sums["shares", part] = np.bincount(kind_of_row, of_rows[:, 0], count)
            sums["memory_bytes", part] = np.bincount(kind_of_row, of_rows[:, 1], count) * _MIB
            compute = self._compute_percents(of_rows[:, 2], ledger.capacity[rows, 2], kind_of_row)
            sums["core_ratio", part] = np.bincount(kind_of_row, compute, count)
        sums |= self._free_sums(rows)
        for (name, part), values in sums.items():
            found: dict[tuple[str, str], float] = {}
            for kind, value in zip(ledger.kinds, values.tolist(), strict=True):
                found[kind.vendor, kind.type] = found.get((kind.vendor, kind.type), 0.0) + value
            for (vendor, device_type), value in found.items():
                families[name].add_metric([vendor, device_type, part], value)
        yield from families.values()

    def _free_sums(self, rows: Int64s) -> dict[tuple[str, str], NDArray[Any]]:
        """Return what is free per kind of device; devices in MIG mode, which have places, are left out."""
        ledger = self._cluster.ledger
        is_shared = ledger.of_kinds(lambda kind: kind.mode != MODE)[rows]
        rows = rows[is_shared & ledger.is_open[rows] & (ledger.left()[rows, 0] > 0)]
        kind_of_row, count = ledger.kind_of_row[rows], len(ledger.kinds)
        offered, left = tuple(ledger.capacity[rows].T), tuple(ledger.left()[rows].T)
        is_idle = offered[0] == left[0]
        sums = {
            ("free_shares", shape): np.bincount(kind_of_row, shares_left(parts, offered, left, np.minimum), count)
            for shape, parts in SHAPES.items()
        }
        for on, mask in (("idle", is_idle), ("shared", ~is_idle)):
            sums["free_memory_bytes", on] = np.bincount(kind_of_row, left[1] * mask, count) * _MIB
        return sums

    @property
    def _units(self) -> Units:
        return {rules.key: rules.core_units for rules in self._cluster.vendors if rules.core_units}

    def _compute_percents(self, amounts: Int64s, wholes: Int64s, kind_of_row: Int64s) -> NDArray[np.float64]:
        """Return *amounts* of compute as percentages of devices with *wholes*."""
        percents, units = amounts.astype(np.float64), self._units
        for number, kind in enumerate(self._cluster.ledger.kinds):
            if kind.vendor in units:
                parts, own = units[kind.vendor], kind_of_row == number
                percents[own] = 100 * parts(amounts[own]) / np.maximum(parts(wholes[own]), 1)
        return percents

    def _device_uses(self) -> Iterator[tuple[str, list[DeviceUse]]]:
        """Yield the devices of each Node that is still there; the cluster may change meanwhile."""
        ledger = self._cluster.ledger
        for name in [entry.inventory.name for entry in ledger.nodes()]:
            if ledger.node(name) is not None:
                yield name, ledger.device_uses(name)

    def _devices(self, node: str) -> Mapping[str, Device]:
        """Return the devices of *node* by UUID, none if it is unknown."""
        entry = self._cluster.ledger.node(node)
        return {device.id: device for device in entry.inventory.devices} if entry else {}

    def _device_families(self) -> Iterator[Metric]:
        cores, whole = "Compute granted, 100 is one device.", "Compute a device offers, 100 is one device."
        overview = "Memory granted, with what the device offers as labels."
        with_cores = (*_DEVICE[:3], "device_cores", "device_type")
        with_totals = (*_DEVICE[:3], "device_cores", "device_memory_limit", "device_type")
        memory_limit = _Gauge("hami_gpu_memory_limit_bytes", "GPUDeviceMemoryLimit", "Memory a device offers.")
        core_limit = _Gauge("hami_gpu_core_limit_ratio", "GPUDeviceCoreLimit", whole)
        memory = _Gauge("hami_gpu_memory_allocated_bytes", "GPUDeviceMemoryAllocated", "Memory granted.", with_cores)
        shared = _Gauge("hami_gpu_shared_count", "GPUDeviceSharedNum", "Shares granted.")
        core = _Gauge("hami_gpu_core_allocated_ratio", "GPUDeviceCoreAllocated", cores)
        overview_of_node = _Gauge("hami_node_gpu_overview", "nodeGPUOverview", overview, with_totals)
        ratio = _Gauge(
            "hami_node_gpu_memory_allocated_ratio",
            "nodeGPUMemoryPercentage",
            "Memory granted, 1 is all of it.",
            old_labels=("nodeid", "deviceuuid", "deviceidx"),
        )
        units = self._units
        for node, uses in self._device_uses():
            for use in uses:
                device, total_cores = use.device, str(use.device.core_percent)
                identity, used_bytes = (node, device.id, str(device.index)), float(use.memory_mib * _MIB)
                labels = (*identity, device.type)
                memory_limit.add(labels, device.memory_mib * _MIB)
                core_limit.add(labels, _compute_percent(units, device, device.core_percent))
                memory.add((*identity, total_cores, device.type), used_bytes)
                shared.add(labels, use.replicas)
                core.add(labels, _compute_percent(units, device, use.core_percent))
                overview_of_node.add((*identity, total_cores, str(device.memory_mib), device.type), used_bytes)
                if device.memory_mib > 0:
                    ratio.add(labels, use.memory_mib / device.memory_mib)
            yield PAUSE
        for gauge in (memory_limit, core_limit, memory, shared, core, overview_of_node, ratio):
            yield from gauge.families(has_legacy_names=self._has_legacy_names)

    def _pod_families(self) -> Iterator[Metric]:
        names = ("namespace", "node", "pod", "container_index", "device_uuid")
        old_names = ("podnamespace", "nodename", "podname", "containeridx", "deviceuuid")
        of_memory, of_cores = "Memory granted to a container.", "Compute granted to a container, 100 is one device."
        memory = _Gauge("hami_vgpu_memory_allocated_bytes", "vGPUMemoryAllocated", of_memory, names, old_names)
        cores = _Gauge("hami_vgpu_core_allocated_ratio", "vGPUCoreAllocated", of_cores, names, old_names)
        units = self._units
        for number, grant in enumerate(list(self._cluster.ledger.grants())):
            if number % _GRANTS_AT_ONCE == 0:
                yield PAUSE
            devices = self._devices(grant.node) if not grant.shares.keys().isdisjoint(units) else {}
            for (index, uuid), (vendor, amount) in sums_by_container(grant.shares).items():
                labels = (grant.namespace, grant.node, grant.name, str(index), uuid)
                memory.add(labels, amount.memory_mib * _MIB)
                if vendor not in units:
                    cores.add(labels, amount.core_percent)
                elif uuid in devices:
                    cores.add(labels, _compute_percent(units, devices[uuid], amount.core_percent))
        yield from memory.families(has_legacy_names=self._has_legacy_names)
        yield from cores.families(has_legacy_names=self._has_legacy_names)

    def _claim_families(self) -> Iterator[Metric]:
        """Yield what ResourceClaims hold. They are no Pods, so they are not in HAMi's families of Pods."""
        labels = ["holder", "node", "device_uuid"]
        memory = GaugeMetricFamily("hami_scheduler_claim_memory_bytes", "Memory a ResourceClaim holds.", labels=labels)
        cores = GaugeMetricFamily(
            "hami_scheduler_claim_core_ratio", "Compute a ResourceClaim holds, 100 is one device.", labels=labels
        )
        for number, grant in enumerate(list(self._cluster.ledger.grants())):
            if number % _GRANTS_AT_ONCE == 0:
                yield PAUSE
            for uuid, amounts in grant.claimed.items():
                memory.add_metric([grant.holder, grant.node, uuid], amounts.memory_mib * _MIB)
                cores.add_metric([grant.holder, grant.node, uuid], amounts.core_percent)
        yield memory
        yield cores

    def _mig_families(self) -> Iterator[Metric]:
        names = ("node", "device_uuid", "device_index", "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id")
        places = ("placement_start", "placement_size")
        old_names = ("nodeid", "deviceuuid", "deviceidx", "migname")
        family = _Gauge("hami_node_gpu_mig_instance_info", "", "A MIG instance that exists.", (*names, *places))
        legacy = _Gauge("nodeGPUMigInstance", "", "A MIG instance that exists.", old_names)
        for number, grant in enumerate(list(self._cluster.ledger.grants())):
            if number % _GRANTS_AT_ONCE == 0:
                yield PAUSE
            devices = self._devices(grant.node) if grant.mig else {}
            for one in grant.mig:
                if one.mig_uuid is not None:
                    index = str(devices[one.gpu_uuid].index) if one.gpu_uuid in devices else ""
                    instance = (one.profile, str(one.gpu_instance_id), str(one.compute_instance_id))
                    place = (str(one.placement.start), str(one.placement.size))
                    family.add((grant.node, one.gpu_uuid, index, one.mig_uuid, *instance, *place), 1)
                    legacy.add((grant.node, one.gpu_uuid, index, f"{one.profile}-{one.gpu_instance_id}"), 1)
        yield from family.families(has_legacy_names=self._has_legacy_names)
        if self._has_legacy_names:
            yield from legacy.families(has_legacy_names=True)

    def _quota_families(self) -> Iterator[Metric]:
        names = ("namespace", "quota_name", "limit")
        old_names = ("quotanamespace", "quotaName", "limit")
        used = _Gauge("hami_resource_quota_used", "QuotaUsed", "Held under a quota.", names, old_names)
        limit = _Gauge("hami_resource_quota_limit", "", "The limit of a quota.", names[:2])
        for use in self._cluster.quotas.uses():
            used.add((use.namespace, use.resource, str(use.limit or 0)), use.used)
            if use.limit is not None:
                limit.add((use.namespace, use.resource), use.limit)
        yield from used.families(has_legacy_names=self._has_legacy_names)
        yield from limit.families(has_legacy_names=self._has_legacy_names)

    def _own_families(self) -> Iterator[Metric]:
        cluster, observed = self._cluster, self._observed
        rejections = "Pods that kubelets rejected although they had enough replicas left by the scheduler's count."
        for name, text, total in (
            ("hami_scheduler_ledger_drift", "Wrong numbers found by recounts.", cluster.drift),
            ("hami_scheduler_edited_pods", "Bound Pods whose allocation was edited.", cluster.edited_pods),
            ("hami_scheduler_kubelet_rejections", rejections, cluster.kubelet_rejections),
            (
                "hami_scheduler_sampled_filters",
                "Filters whose candidates were a sample of the Nodes.",
                observed.sampled_filters(),
            ),
            ("hami_scheduler_events_lost", "Events that could not be written.", observed.events_lost()),
        ):
            yield CounterMetricFamily(name, text, value=total)
        waiting, seconds = observed.waiting()
        reserved, unfenced = len(cluster.reservations), observed.unfenced()
        unknown = cluster.claims.unknown_devices
        for name, text, value in (
            ("hami_scheduler_reservations", "Pods with reserved devices that are not seen bound yet.", reserved),
            ("hami_scheduler_unknown_claim_devices", "Devices of ResourceClaims that no slice lists.", unknown),
            ("hami_scheduler_leader", "1 for the replica that decides.", observed.is_leader()),
            ("hami_scheduler_waiting_pods", "Refused Pods that wait for devices.", waiting),
            ("hami_scheduler_longest_wait_seconds", "Age of the oldest refused Pod that waits.", seconds),
            ("hami_scheduler_unfenced_pods", "Waiting Pods that an earlier scheduler may still bind.", unfenced),
        ):
            yield GaugeMetricFamily(name, text, float(value))
        age = GaugeMetricFamily(
            "hami_scheduler_watch_age_seconds", "Time since the last message of the API server.", labels=["collection"]
        )
        lists = CounterMetricFamily("hami_scheduler_relists", "Lists after the first.", labels=["collection"])
        for collection, (seconds, restarts) in observed.reflectors().items():
            age.add_metric([collection], seconds)
            lists.add_metric([collection], restarts)
        yield age
        yield lists
        yield build_family(__version__)


def _compute_percent(units: Units, device: Device, amount: int) -> float:
    """Return *amount* as a percentage of the compute of *device*, rounded up as in HAMi."""
    parts = units.get(device.vendor)
    if parts is None:
        return amount
    return math.ceil(100 * int(parts(amount)) / max(int(parts(device.core_percent)), 1))


def _by_type(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"hami_scheduler_{name}", text, labels=["vendor", "device_type", label])


class _Gauge:
    """A family of HAMi's under its name, and under its name of 2.8 and before, empty if it had none."""

    def __init__(
        self,
        name: str,
        old_name: str,
        text: str,
        labels: tuple[str, ...] = _DEVICE,
        old_labels: tuple[str, ...] = (),
    ) -> None:
        """Start without samples. The old labels may be fewer; by default they are the new ones as HAMi renamed them."""
        self._family = GaugeMetricFamily(name, text, labels=[*labels, _ZONE])
        self._old_name = old_name
        self._old_labels = old_labels or tuple(_OLD_LABELS.get(label, label.replace("_", "")) for label in labels)

    def add(self, labels: tuple[str, ...], value: float) -> None:
        """Add a sample."""
        self._family.add_metric([*labels, "vGPU"], value)

    def families(self, *, has_legacy_names: bool) -> Iterator[Metric]:
        """Yield the family; with *has_legacy_names* also the old one."""
        yield self._family
        if not (has_legacy_names and self._old_name):
            return
        old = GaugeMetricFamily(self._old_name, self._family.documentation, labels=[*self._old_labels, _ZONE])
        for number, sample in enumerate(self._family.samples):
            if number % _GRANTS_AT_ONCE == 0:
                yield PAUSE
            old.add_metric([*[*sample.labels.values()][: len(self._old_labels)], "vGPU"], sample.value)
        yield old
