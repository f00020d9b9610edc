"""
Make the metric families of HAMi 2.10 from an observation.

Owns their names, labels and values.
Neighbours: `observation` says what is shown, `collector` answers the scrape.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/metrics.go
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import attrgetter

from prometheus_client.core import GaugeMetricFamily, Metric

from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.observation import (
    Labels,
    Observation,
    ShownDevice,
    library_unreached,
    library_waits,
    mig_instances,
    shown_devices,
)
from hami_monitor.metrics.device_families import device_families
from hami_monitor.metrics.device_families import share_families as own_share_families
from hami_monitor.metrics.library_families import unreached_family, wait_families
from hamicommon.runtime.serving.samples import NamedLabels, Row, set_samples
from hamicommon.wire.region import DeviceSums

ZONE = "vGPU"
"""Value of the label `zone`, which every family but the build's has."""

HOST: Labels = ("node", "device_index", "device_uuid", "device_type")
SHARE: Labels = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
MIG: Labels = (*SHARE, "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id")
LEGACY_HOST: Labels = ("nodeid", "deviceidx", "deviceuuid", "devicetype")
LEGACY_SHARE: Labels = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")


@dataclass(frozen=True, slots=True)
class HostFamily:
    """A family with a sample for each physical device that has a value."""

    name: str
    documentation: str
    value: Callable[[HostDevice], float | None]
    labels: Labels = HOST


@dataclass(frozen=True, slots=True)
class ShareFamily:
    """A family with a sample for each shown device of each container that has a value."""

    name: str
    documentation: str
    value: Callable[[ShownDevice], float | None]
    labels: Labels = SHARE


def used(name: str) -> Callable[[ShownDevice], float | None]:
    """Return the function that reads *name* of the use of a device."""
    read = attrgetter(name)
    return lambda shown: None if shown.sums is None else read(shown.sums)


def part(name: str) -> Callable[[ShownDevice], float | None]:
    """Return the function that reads *name*, a part of the memory that only a library counts."""
    read = used(name)
    return lambda shown: read(shown) if shown.has_library else None


HOST_FAMILIES = (
    HostFamily(
        "hami_host_gpu_memory_used_bytes",
        "Memory in use on the device by all processes, in bytes",
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
        used("total"),
    ),
    ShareFamily(
        "hami_vgpu_memory_limit_bytes",
        "Device memory the container may use, in bytes; 0 is no limit",
        lambda shown: shown.memory_limit_bytes,
    ),
    ShareFamily(
        "hami_container_device_memory_bytes",
        "Device memory the container uses, in bytes",
        used("total"),
    ),
    ShareFamily(
        "hami_container_device_utilization_ratio",
        "Device time of the container's processes, summed, in percent",
        used("sm"),
    ),
    ShareFamily(
        "hami_container_last_kernel_elapsed_seconds",
        "Time since the container's last kernel launch, in seconds",
        lambda shown: shown.idle_seconds,
    ),
    ShareFamily(
        "hami_vgpu_memory_context_bytes",
        "Device memory of the container's contexts, in bytes",
        part("context"),
    ),
    ShareFamily(
        "hami_vgpu_memory_module_bytes",
        "Device memory of the container's modules, in bytes",
        part("module"),
    ),
    ShareFamily(
        "hami_vgpu_memory_buffer_bytes",
        "Device memory the container's programs allocated, in bytes",
        part("data"),
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
        used("total"),
        labels=LEGACY_SHARE,
    ),
    ShareFamily(
        "vGPU_device_memory_limit_in_bytes",
        "Name up to HAMi 2.8 of hami_vgpu_memory_limit_bytes",
        lambda shown: shown.memory_limit_bytes,
        labels=LEGACY_SHARE,
    ),
    ShareFamily(
        "Device_utilization_desc_of_container",
        "Name up to HAMi 2.8 of hami_container_device_utilization_ratio",
        used("sm"),
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
    """Return every family of *observation*; *has_legacy_names* adds those under HAMi's names up to 2.8."""
    shown = list(shown_devices(observation))
    host_families = HOST_FAMILIES + (LEGACY_HOST_FAMILIES if has_legacy_names else ())
    share_families = SHARE_FAMILIES + (LEGACY_SHARE_FAMILIES if has_legacy_names else ())
    places = {labels: [(_named(labels, one.labels), one) for one in shown] for labels in (SHARE, LEGACY_SHARE)}
    result: list[Metric] = [
        *(_host_family(family, observation) for family in host_families),
        *(_share_family(family, places[family.labels]) for family in share_families),
        _mig_family(observation),
        *device_families(observation.node_name, observation.host_devices),
        *own_share_families(shown),
        *wait_families(library_waits(observation)),
        unreached_family(library_unreached(observation)),
    ]
    if has_legacy_names:
        result += [_legacy_memory_family(shown), _legacy_mig_family(observation)]
    return result


def _share_family(family: ShareFamily, places: Iterable[tuple[NamedLabels, ShownDevice]]) -> GaugeMetricFamily:
    rows = ((place, family.value(one)) for place, one in places)
    return _family(family.name, family.documentation, family.labels, rows)


def _family(name: str, documentation: str, labels: Labels, rows: Iterable[Row]) -> GaugeMetricFamily:
    """Return the family *name* with a sample for each of *rows* that has a value."""
    family = GaugeMetricFamily(name, documentation, labels=("zone", *labels))
    set_samples(family, rows)
    return family


def _filled(
    name: str, documentation: str, labels: Labels, rows: Iterable[tuple[Labels, float | None]]
) -> GaugeMetricFamily:
    """Return the same family from *rows* without the names of their labels."""
    return _family(name, documentation, labels, ((_named(labels, values), value) for values, value in rows))


def _named(names: Labels, values: Labels) -> NamedLabels:
    return {"zone": ZONE, **dict(zip(names, values, strict=True))}


def _host_family(family: HostFamily, observation: Observation) -> GaugeMetricFamily:
    """Return *family* for the host's devices. `device_type` repeats NVIDIA if the name contains it, as in HAMi."""
    rows = (
        (
            (observation.node_name, str(device.index), device.uuid, f"NVIDIA-{device.name}")[-len(family.labels) :],
            family.value(device),
        )
        for device in observation.host_devices
    )
    return _filled(family.name, family.documentation, family.labels, rows)


def _mig_family(observation: Observation) -> GaugeMetricFamily:
    rows = (((*share, *instance), 1.0) for share, instance in mig_instances(observation))
    return _filled("hami_mig_device_info", "A MIG instance and its container, always 1", MIG, rows)


def _legacy_mig_family(observation: Observation) -> GaugeMetricFamily:
    rows = (((*share, gpu_instance), 1.0) for share, (_, _, gpu_instance, _) in mig_instances(observation))
    return _filled("MigInfo", "Name up to HAMi 2.8 of hami_mig_device_info", (*LEGACY_SHARE, "instanceid"), rows)


def _legacy_memory_family(shown: Iterable[ShownDevice]) -> GaugeMetricFamily:
    """Return the family whose labels are amounts. As in HAMi, `offset` is the sum minus the other three."""
    labels = (*LEGACY_SHARE, "context", "module", "data", "offset")
    documentation = "Name up to HAMi 2.8 of hami_container_device_memory_bytes"
    return _filled("Device_memory_desc_of_container", documentation, labels, map(_legacy_memory_row, shown))


def _legacy_memory_row(shown: ShownDevice) -> tuple[Labels, float | None]:
    sums = shown.sums or DeviceSums()
    parts = (sums.context, sums.module, sums.data)
    value = None if shown.sums is None else sums.total
    return (*shown.labels, *map(str, (*parts, max(0, sums.total - sum(parts))))), value
