"""
Turn usages into the metric families of HAMi 2.10.

Owns the names, labels and values of what is exported. Knows no file, no clock and no driver.
Neighbours: `usage`, `pods` and `nvml` give the values, `collector` hands the families to the HTTP server.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/metrics.go
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily, Metric

from hami_monitor.containers import ContainerKey
from hami_monitor.pods import MonitoredPod
from hami_monitor.usage import ContainerUsage, DeviceUsage

ZONE = "vGPU"
"""The label `zone` of every family but the build's, always with this value."""
MIB = 1 << 20

Labels = tuple[str, ...]
HOST: Labels = ("node", "device_index", "device_uuid", "device_type")
SHARE: Labels = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
MIG: Labels = (*SHARE, "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id")
LEGACY_HOST: Labels = ("nodeid", "deviceidx", "deviceuuid", "devicetype")
LEGACY_SHARE: Labels = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")


@dataclass(frozen=True, slots=True)
class HostDevice:
    """One physical device, as the driver reports it. None stands for what the driver cannot tell."""

    index: int
    uuid: str
    name: str
    memory_used_bytes: int | None
    utilization_percent: int | None
    memory_utilization_percent: int | None
    """Share of time in which the memory controller was busy."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything one scrape shows."""

    node_name: str
    now_seconds: float
    pods: tuple[MonitoredPod, ...] = ()
    usages: Mapping[ContainerKey, ContainerUsage] = field(default_factory=dict)
    refused: frozenset[ContainerKey] = frozenset()
    """Containers whose region cannot be read: nothing is said of what they use."""
    host_devices: tuple[HostDevice, ...] = ()
    device_order: Mapping[str, int] = field(default_factory=dict)
    """Index of each UUID on the host, as the driver last said."""


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """One device of one container that is in the metrics."""

    labels: Labels
    """Values of SHARE, which are those of LEGACY_SHARE too."""
    device: DeviceUsage
    idle_seconds: float | None
    """Since the container's last launch; None before the first."""


@dataclass(frozen=True, slots=True)
class HostFamily:
    """A family with one sample for each physical device that has a value."""

    name: str
    documentation: str
    value: Callable[[HostDevice], float | None]
    labels: Labels = HOST


@dataclass(frozen=True, slots=True)
class ShareFamily:
    """A family with one sample for each shown device of each container that has a value."""

    name: str
    documentation: str
    value: Callable[[ShownDevice], float | None]
    labels: Labels = SHARE


HOST_FAMILIES = (
    HostFamily(
        "hami_host_gpu_memory_used_bytes",
        "Memory in use on the device, by everybody, in bytes",
        lambda device: device.memory_used_bytes,
    ),
    HostFamily(
        "hami_host_gpu_utilization_ratio",
        "Time in which the device ran kernels, in percent",
        lambda device: device.utilization_percent,
    ),
    HostFamily(
        "hami_host_gpu_memory_controller_utilization_ratio",
        "Time in which the device read or wrote its memory, in percent",
        lambda device: device.memory_utilization_percent,
        labels=HOST[1:],
    ),
)

SHARE_FAMILIES = (
    ShareFamily(
        "hami_vgpu_memory_used_bytes",
        "Device memory the container uses, in bytes",
        lambda shown: shown.device.memory_used_bytes,
    ),
    ShareFamily(
        "hami_vgpu_memory_limit_bytes",
        "Device memory the container may use, in bytes; 0 is no limit",
        lambda shown: shown.device.memory_limit_bytes,
    ),
    ShareFamily(
        "hami_container_device_memory_bytes",
        "Device memory the container uses, in bytes",
        lambda shown: shown.device.memory_used_bytes,
    ),
    ShareFamily(
        "hami_container_device_utilization_ratio",
        "Device time the container's processes use, added up, in percent",
        lambda shown: shown.device.utilization_percent,
    ),
    ShareFamily(
        "hami_container_last_kernel_elapsed_seconds",
        "Time since the container's last kernel launch, in seconds",
        lambda shown: shown.idle_seconds,
    ),
    ShareFamily(
        "hami_vgpu_memory_context_bytes",
        "Device memory of the container's contexts, in bytes",
        lambda shown: shown.device.context_bytes,
    ),
    ShareFamily(
        "hami_vgpu_memory_module_bytes",
        "Device memory of the container's modules, in bytes",
        lambda shown: shown.device.module_bytes,
    ),
    ShareFamily(
        "hami_vgpu_memory_buffer_bytes",
        "Device memory the container's programs allocated, in bytes",
        lambda shown: shown.device.buffer_bytes,
    ),
)

LEGACY_HOST_FAMILIES = (
    HostFamily(
        "HostGPUMemoryUsage",
        "Name up to HAMi 2.8 of hami_host_gpu_memory_used_bytes",
        lambda device: device.memory_used_bytes,
        labels=LEGACY_HOST,
    ),
    HostFamily(
        "HostCoreUtilization",
        "Name up to HAMi 2.8 of hami_host_gpu_utilization_ratio",
        lambda device: device.utilization_percent,
        labels=LEGACY_HOST,
    ),
)

LEGACY_SHARE_FAMILIES = (
    ShareFamily(
        "vGPU_device_memory_usage_in_bytes",
        "Name up to HAMi 2.8 of hami_vgpu_memory_used_bytes",
        lambda shown: shown.device.memory_used_bytes,
        labels=LEGACY_SHARE,
    ),
    ShareFamily(
        "vGPU_device_memory_limit_in_bytes",
        "Name up to HAMi 2.8 of hami_vgpu_memory_limit_bytes",
        lambda shown: shown.device.memory_limit_bytes,
        labels=LEGACY_SHARE,
    ),
    ShareFamily(
        "Device_utilization_desc_of_container",
        "Name up to HAMi 2.8 of hami_container_device_utilization_ratio",
        lambda shown: shown.device.utilization_percent,
        labels=LEGACY_SHARE,
    ),
    ShareFamily(
        "Device_last_kernel_of_container",
        "Name up to HAMi 2.8 of hami_container_last_kernel_elapsed_seconds",
        lambda shown: shown.idle_seconds,
        labels=LEGACY_SHARE,
    ),
)


def families(observation: Observation, *, has_legacy_names: bool = False) -> list[Metric]:
    """Return every family of *observation*, with *has_legacy_names* also those under the names HAMi used up to 2.8."""
    shown = list(_shown_devices(observation))
    host_families = HOST_FAMILIES + (LEGACY_HOST_FAMILIES if has_legacy_names else ())
    share_families = SHARE_FAMILIES + (LEGACY_SHARE_FAMILIES if has_legacy_names else ())
    result: list[Metric] = [
        *(_host_family(family, observation) for family in host_families),
        *(_filled(f.name, f.documentation, f.labels, ((s.labels, f.value(s)) for s in shown)) for f in share_families),
        _mig_family(observation),
    ]
    if has_legacy_names:
        result += [_legacy_memory_family(shown), _legacy_mig_family(observation)]
    return result


def _filled(
    name: str, documentation: str, labels: Labels, rows: Iterable[tuple[Labels, float | None]]
) -> GaugeMetricFamily:
    """Return the family *name* with one sample for each of *rows* that has a value."""
    family = GaugeMetricFamily(name, documentation, labels=("zone", *labels))
    for values, value in rows:
        if value is not None:
            family.add_metric((ZONE, *values), value)
    return family


def _host_family(family: HostFamily, observation: Observation) -> GaugeMetricFamily:
    """Return *family* for the host's devices. `device_type` says NVIDIA even where the name does, as HAMi's."""
    rows = (
        (
            (observation.node_name, str(device.index), device.uuid, f"NVIDIA-{device.name}")[-len(family.labels) :],
            family.value(device),
        )
        for device in observation.host_devices
    )
    return _filled(family.name, family.documentation, family.labels, rows)


def _shown_devices(observation: Observation) -> Iterator[ShownDevice]:
    """Yield the devices of each container of each Pod: as used where a region names them, else as granted."""
    for pod in observation.pods:
        for container in pod.containers:
            key = ContainerKey(pod.uid, container)
            if container not in pod.shown or key in observation.refused:
                continue
            usage = observation.usages.get(key)
            if usage is None or not usage.devices:
                usage = _granted(pod, container, observation.device_order)
            last = usage.last_kernel_seconds
            idle_seconds = None if last is None else max(0.0, observation.now_seconds - last)
            for device in usage.devices:
                labels = (pod.namespace, pod.name, container, str(device.index), device.uuid)
                yield ShownDevice(labels, device, idle_seconds)


def _granted(pod: MonitoredPod, container: str, order: Mapping[str, int]) -> ContainerUsage:
    """
    Return the usage of a container that has not touched its devices yet: nothing, of what it was granted.

    The container will number its devices as the driver does, so *order* (host index by UUID) sorts them. The UUID of
    a MIG instance is not in the grant: its series begin with its region.
    """
    if any(name == container for name, _ in pod.mig_allocations):
        return ContainerUsage(devices=())
    shares = sorted(pod.shares.get(container, ()), key=lambda share: order.get(share.uuid, 0))
    return ContainerUsage(
        devices=tuple(
            DeviceUsage(index, share.uuid, memory_limit_bytes=share.memory_mib * MIB, memory_used_bytes=0)
            for index, share in enumerate(shares)
        )
    )


def _mig_rows(observation: Observation) -> Iterator[tuple[Labels, Labels]]:
    """Yield the share labels of each MIG instance that exists, and its own: UUID, profile, both instance ids."""
    for pod in observation.pods:
        for container, mig in pod.mig_allocations:
            if container in pod.shown and mig.mig_uuid is not None:
                share = (pod.namespace, pod.name, container, str(mig.device_index), mig.gpu_uuid)
                yield share, (mig.mig_uuid, mig.profile, str(mig.gpu_instance_id), str(mig.compute_instance_id))


def _mig_family(observation: Observation) -> GaugeMetricFamily:
    rows = (((*share, *instance), 1.0) for share, instance in _mig_rows(observation))
    return _filled("hami_mig_device_info", "A MIG instance and the container it belongs to", MIG, rows)


def _legacy_mig_family(observation: Observation) -> GaugeMetricFamily:
    rows = (((*share, gpu_instance), 1.0) for share, (_, _, gpu_instance, _) in _mig_rows(observation))
    return _filled("MigInfo", "Name up to HAMi 2.8 of hami_mig_device_info", (*LEGACY_SHARE, "instanceid"), rows)


def _legacy_memory_family(shown: Iterable[ShownDevice]) -> GaugeMetricFamily:
    """Return the family whose labels are amounts. Its `offset` is what the other three leave of the sum, as HAMi's."""
    labels = (*LEGACY_SHARE, "context", "module", "data", "offset")
    documentation = "Name up to HAMi 2.8 of hami_container_device_memory_bytes"
    return _filled("Device_memory_desc_of_container", documentation, labels, map(_legacy_memory_row, shown))


def _legacy_memory_row(shown: ShownDevice) -> tuple[Labels, float]:
    device = shown.device
    parts = (device.context_bytes, device.module_bytes, device.buffer_bytes)
    offset = max(0, device.memory_used_bytes - sum(parts))
    return (*shown.labels, *map(str, (*parts, offset))), device.memory_used_bytes
