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
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import Int64s, Ledger
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.grant import sums_by_container
from hami_scheduler.values.reasons import PUBLIC_REASONS, Reason
from hamicommon.model import Device
from hamicommon.runtime.serving.build import build_family

_MIB = 1024 * 1024
_ZONE = "vGPU"
_DEVICE = ("node", "device_uuid", "device_index", "device_type")
_LEGACY_DEVICE = ("nodeid", "deviceuuid", "deviceidx", "devicetype")
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)

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


class Verbs:
    """Calls of the verbs."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register in *registry*; each outcome has a series from the start, so that rates are right."""
        self._seconds: dict[tuple[str, str], Histogram] = {}
        for verb, outcomes in _OUTCOMES.items():
            seconds = Histogram(
                f"hami_scheduler_{verb}_seconds",
                f"Time to answer a call of {verb}.",
                ["outcome"],
                buckets=_SECONDS,
                registry=registry,
            )
            self._seconds |= {(verb, outcome): seconds.labels(outcome) for outcome in outcomes}

    def observe(self, verb: str, seconds: float, outcome: str) -> None:
        """Count one call of *verb*."""
        self._seconds[verb, outcome].observe(seconds)


def woken_pods(registry: CollectorRegistry) -> Counter:
    """Return the counter of refused Pods that were woken."""
    return Counter(
        "hami_scheduler_woken_pods",
        "Refused Pods woken because they fit and kube-scheduler had not asked again.",
        registry=registry,
    )


class Refused:
    """Filters that found no Node."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register in *registry*; each reason has a series from the start, so that rates are right."""
        self._filters = Counter(
            "hami_scheduler_refused_filters",
            "Filters that found no Node, by the reason that most Nodes gave.",
            ["reason"],
            registry=registry,
        )
        for reason in PUBLIC_REASONS:
            self._filters.labels(reason.value)

    def count(self, reason: Reason) -> None:
        """Count one filter that found no Node, mostly for *reason*."""
        self._filters.labels(reason.value).inc()


class Problems:
    """Parts of objects that could not be used."""

    def __init__(self, registry: CollectorRegistry) -> None:
        """Register in *registry*."""
        self._problems = Counter(
            "hami_scheduler_contained_problems",
            "Parts of Nodes and Pods that could not be used.",
            ["kind", "key"],
            registry=registry,
        )

    def count(self, kind: str, key: str) -> None:
        """Count one problem with annotation *key* of an object of *kind*."""
        self._problems.labels(kind, key).inc()


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
        has_devices = _device_count(self._cluster.ledger) <= self._device_limit
        if has_devices:
            yield from self._device_families()
            yield from self._pod_families()
            yield from self._mig_families()
        yield GaugeMetricFamily(
            "hami_scheduler_device_series", "1 while each device and share has its own series.", float(has_devices)
        )
        yield from self._quota_families()

    def _type_families(self) -> Iterator[Metric]:
        """Yield sums over all devices of a type; their number does not grow with the cluster."""
        ledger = self._cluster.ledger
        rows = np.flatnonzero(ledger.node_of_row[: ledger.row_count] >= 0)
        kind_of_row, count = ledger.kind_of_row[rows], len(ledger.kinds)
        families = {
            "devices": _by_type("devices", "Devices, healthy and not cordoned (open) or not (closed).", "state"),
            "shares": _by_type("shares", "Shares offered and granted.", "part"),
            "memory_bytes": _by_type("memory_bytes", "Memory offered and granted.", "part"),
            "core_ratio": _by_type("core_ratio", "Compute offered and granted, 100 is one device.", "part"),
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
        for (name, part), values in sums.items():
            found: dict[tuple[str, str], float] = {}
            for kind, value in zip(ledger.kinds, values.tolist(), strict=True):
                found[kind.vendor, kind.type] = found.get((kind.vendor, kind.type), 0.0) + value
            for (vendor, device_type), value in found.items():
                families[name].add_metric([vendor, device_type, part], value)
        yield from families.values()

    @property
    def _units(self) -> Units:
        return {frame.key: frame.core_units for frame in self._cluster.vendors if frame.core_units}

    def _compute_percents(self, amounts: Int64s, wholes: Int64s, kind_of_row: Int64s) -> NDArray[np.float64]:
        """Return *amounts* of compute as percentages of devices with *wholes*."""
        percents, units = amounts.astype(np.float64), self._units
        for number, kind in enumerate(self._cluster.ledger.kinds):
            if kind.vendor in units:
                parts, own = units[kind.vendor], kind_of_row == number
                percents[own] = 100 * parts(amounts[own]) / np.maximum(parts(wholes[own]), 1)
        return percents

    def _device_uses(self) -> Iterator[tuple[str, DeviceUse]]:
        ledger = self._cluster.ledger
        for entry in ledger.nodes():
            for use in ledger.device_uses(entry.inventory.name):
                yield entry.inventory.name, use

    def _devices(self, node: str) -> Mapping[str, Device]:
        """Return the devices of *node* by UUID, none if it is unknown."""
        entry = self._cluster.ledger.node(node)
        return {device.id: device for device in entry.inventory.devices} if entry else {}

    def _device_families(self) -> Iterator[Metric]:
        memory_limit = _gauge("hami_gpu_memory_limit_bytes", "Memory a device offers.", _DEVICE)
        core_limit = _gauge("hami_gpu_core_limit_ratio", "Compute a device offers, 100 is one device.", _DEVICE)
        memory = _gauge(
            "hami_gpu_memory_allocated_bytes", "Memory granted.", (*_DEVICE[:3], "device_cores", "device_type")
        )
        shared = _gauge("hami_gpu_shared_count", "Shares granted.", _DEVICE)
        cores = _gauge("hami_gpu_core_allocated_ratio", "Compute granted, 100 is one device.", _DEVICE)
        overview = _gauge(
            "hami_node_gpu_overview",
            "Memory granted, with what the device offers as labels.",
            (*_DEVICE[:3], "device_cores", "device_memory_limit", "device_type"),
        )
        ratio = _gauge("hami_node_gpu_memory_allocated_ratio", "Memory granted, 1 is all of it.", _DEVICE)
        units = self._units
        for node, use in self._device_uses():
            device = use.device
            labels = _labels(node, device)
            total_cores = str(device.core_percent)
            used_bytes = float(use.memory_mib * _MIB)
            _add(memory_limit, labels, device.memory_mib * _MIB)
            _add(core_limit, labels, _compute_percent(units, device, device.core_percent))
            _add(memory, (*labels[:3], total_cores, device.type), used_bytes)
            _add(shared, labels, use.replicas)
            _add(cores, labels, _compute_percent(units, device, use.core_percent))
            _add(overview, (*labels[:3], total_cores, str(device.memory_mib), device.type), used_bytes)
            if device.memory_mib > 0:
                _add(ratio, labels, use.memory_mib / device.memory_mib)
        families = (memory_limit, core_limit, memory, shared, cores, overview, ratio)
        yield from families
        if self._has_legacy_names:
            yield from _legacy(families)

    def _pod_families(self) -> Iterator[Metric]:
        names = ("namespace", "node", "pod", "container_index", "device_uuid")
        memory = _gauge("hami_vgpu_memory_allocated_bytes", "Memory granted to a container.", names)
        cores = _gauge("hami_vgpu_core_allocated_ratio", "Compute granted to a container, 100 is one device.", names)
        units = self._units
        for grant in self._cluster.ledger.grants():
            devices = self._devices(grant.node) if not grant.shares.keys().isdisjoint(units) else {}
            for (index, uuid), (vendor, amount) in sums_by_container(grant.shares).items():
                labels = (grant.namespace, grant.node, grant.name, str(index), uuid)
                _add(memory, labels, amount.memory_mib * _MIB)
                if vendor not in units:
                    _add(cores, labels, amount.core_percent)
                elif uuid in devices:
                    _add(cores, labels, _compute_percent(units, devices[uuid], amount.core_percent))
        yield memory
        yield cores
        if self._has_legacy_names:
            legacy = ("podnamespace", "nodename", "podname", "containeridx", "deviceuuid")
            yield _renamed(memory, "vGPUMemoryAllocated", legacy)
            yield _renamed(cores, "vGPUCoreAllocated", legacy)

    def _mig_families(self) -> Iterator[Metric]:
        names = ("node", "device_uuid", "device_index", "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id")
        places = ("placement_start", "placement_size")
        family = _gauge("hami_node_gpu_mig_instance_info", "A MIG instance that exists.", (*names, *places))
        legacy = _gauge("nodeGPUMigInstance", "A MIG instance that exists.", (*_LEGACY_DEVICE[:3], "migname"))
        for grant in self._cluster.ledger.grants():
            devices = self._devices(grant.node) if grant.mig else {}
            for one in grant.mig:
                if one.mig_uuid is not None:
                    index = str(devices[one.gpu_uuid].index) if one.gpu_uuid in devices else ""
                    instance = (one.profile, str(one.gpu_instance_id), str(one.compute_instance_id))
                    place = (str(one.placement.start), str(one.placement.size))
                    _add(family, (grant.node, one.gpu_uuid, index, one.mig_uuid, *instance, *place), 1)
                    _add(legacy, (grant.node, one.gpu_uuid, index, f"{one.profile}-{one.gpu_instance_id}"), 1)
        yield family
        if self._has_legacy_names:
            yield legacy

    def _quota_families(self) -> Iterator[Metric]:
        used = _gauge("hami_resource_quota_used", "Held under a quota.", ("namespace", "quota_name", "limit"))
        limit = _gauge("hami_resource_quota_limit", "The limit of a quota.", ("namespace", "quota_name"))
        for use in self._cluster.quotas.uses():
            _add(used, (use.namespace, use.resource, str(use.limit or 0)), use.used)
            if use.limit is not None:
                _add(limit, (use.namespace, use.resource), use.limit)
        yield used
        yield limit
        if self._has_legacy_names:
            yield _renamed(used, "QuotaUsed", ("quotanamespace", "quotaName", "limit"))

    def _own_families(self) -> Iterator[Metric]:
        cluster = self._cluster
        yield _counter("hami_scheduler_ledger_drift", "Wrong numbers found by recounts.", cluster.drift)
        yield _counter("hami_scheduler_edited_pods", "Bound Pods whose allocation was edited.", cluster.edited_pods)
        sampled = self._observed.sampled_filters()
        yield _counter(
            "hami_scheduler_sampled_filters", "Filters whose candidates were a sample of the Nodes.", sampled
        )
        yield _counter("hami_scheduler_events_lost", "Events that could not be written.", self._observed.events_lost())
        yield GaugeMetricFamily(
            "hami_scheduler_reservations",
            "Pods with reserved devices that are not seen bound yet.",
            value=len(cluster.reservations),
        )
        is_leader = self._observed.is_leader()
        yield GaugeMetricFamily("hami_scheduler_leader", "1 for the replica that decides.", float(is_leader))
        waiting, seconds = self._observed.waiting()
        yield GaugeMetricFamily("hami_scheduler_waiting_pods", "Refused Pods that wait for devices.", value=waiting)
        yield GaugeMetricFamily(
            "hami_scheduler_longest_wait_seconds", "Age of the oldest refused Pod that waits.", value=seconds
        )
        age = GaugeMetricFamily(
            "hami_scheduler_watch_age_seconds", "Time since the last message of the API server.", labels=["collection"]
        )
        lists = CounterMetricFamily("hami_scheduler_relists", "Lists after the first.", labels=["collection"])
        for collection, (seconds, restarts) in self._observed.reflectors().items():
            age.add_metric([collection], seconds)
            lists.add_metric([collection], restarts)
        yield age
        yield lists
        yield build_family(__version__)


def _device_count(ledger: Ledger) -> int:
    return int(np.count_nonzero(ledger.node_of_row[: ledger.row_count] >= 0))


def _compute_percent(units: Units, device: Device, amount: int) -> float:
    """Return *amount* as a percentage of the compute of *device*, rounded up as in HAMi."""
    parts = units.get(device.vendor)
    if parts is None:
        return amount
    return math.ceil(100 * int(parts(amount)) / max(int(parts(device.core_percent)), 1))


def _by_type(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"hami_scheduler_{name}", text, labels=["vendor", "device_type", label])


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=[*labels, "zone"])


def _add(family: GaugeMetricFamily, labels: tuple[str, ...], value: float) -> None:
    family.add_metric([*labels, _ZONE], value)


def _counter(name: str, text: str, value: int) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)


def _labels(node: str, device: Device) -> tuple[str, str, str, str]:
    return node, device.id, str(device.index), device.type


def _legacy(families: tuple[GaugeMetricFamily, ...]) -> Iterator[Metric]:
    """Yield the device *families* under the names of HAMi 2.8 and before."""
    with_cores = (*_LEGACY_DEVICE[:3], "devicecores", "devicetype")
    overview = (*_LEGACY_DEVICE[:3], "devicecores", "devicememorylimit", "devicetype")
    names = (
        ("GPUDeviceMemoryLimit", _LEGACY_DEVICE),
        ("GPUDeviceCoreLimit", _LEGACY_DEVICE),
        ("GPUDeviceMemoryAllocated", with_cores),
        ("GPUDeviceSharedNum", _LEGACY_DEVICE),
        ("GPUDeviceCoreAllocated", _LEGACY_DEVICE),
        ("nodeGPUOverview", overview),
        ("nodeGPUMemoryPercentage", _LEGACY_DEVICE[:3]),
    )
    for family, (name, labels) in zip(families, names, strict=True):
        yield _renamed(family, name, labels)


def _renamed(family: Metric, name: str, labels: tuple[str, ...]) -> Metric:
    """Return *family* under another name with other label names; extra labels at the end are dropped."""
    renamed = _gauge(name, family.documentation, labels)
    for sample in family.samples:
        values = [value for key, value in sample.labels.items() if key != "zone"]
        _add(renamed, tuple(values[: len(labels)]), sample.value)
    return renamed
