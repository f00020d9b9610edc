"""
Make the metric families of HAMi 2.10 from an observation, and those of what a container's library waits for and
does not reach.

Owns their names, labels and values. HAMi has none that start with `hami_library_`: a reason has samples once there was
such a wait, and a kind once it was counted.
Neighbours: `observation` says what is shown, `collector` answers the scrape.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/metrics.go
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from prometheus_client.core import Metric

from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.observation import (
    Labels,
    Observation,
    ShownDevice,
    claim_users,
    library_usages,
    mig_instances,
    shown_devices,
)
from hami_monitor.decide.usage import ContainerUsage
from hami_monitor.metrics.device_families import device_families
from hami_monitor.metrics.device_families import share_families as own_share_families
from hami_monitor.metrics.family import COUNTER, Family, filled, named
from hamicommon.wire.region.records import WaitRecord
from hamicommon.wire.region.sums import DeviceSums

T = TypeVar("T")

ZONE = "vGPU"
"""Value of the label `zone`, which every family but the build's has."""

HOST: Labels = ("node", "device_index", "device_uuid", "device_type")
SHARE: Labels = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
MIG: Labels = (*SHARE, "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id")
LEGACY_HOST: Labels = ("nodeid", "deviceidx", "deviceuuid", "devicetype")
LEGACY_SHARE: Labels = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
LEGACY_MEMORY: Labels = (*LEGACY_SHARE, "context", "module", "data", "offset")
LEGACY_MIG: Labels = (*LEGACY_SHARE, "instanceid")


def used(name: str) -> Callable[[ShownDevice], float | None]:
    """Return the function that reads *name* of the use of a device."""
    read = attrgetter(name)
    return lambda shown: None if shown.sums is None else read(shown.sums)


def part(name: str) -> Callable[[ShownDevice], float | None]:
    """Return the function that reads *name*, a part of the memory that only a library counts."""
    read = used(name)
    return lambda shown: read(shown) if shown.has_library else None


HOST_FAMILIES: tuple[Family[HostDevice], ...] = (
    Family(
        "hami_host_gpu_memory_used_bytes",
        "Memory in use on the device by all processes, in bytes",
        lambda device: device.memory_used_bytes,
    ),
    Family(
        "hami_host_gpu_utilization_ratio",
        "Time in which the device ran kernels, in percent",
        lambda device: device.utilization_percent,
    ),
)
CONTROLLER_FAMILY: Family[HostDevice] = Family(
    "hami_host_gpu_memory_controller_utilization_ratio",
    "Time in which the device read or wrote its memory, in percent",
    lambda device: device.memory_utilization_percent,
)
"""HAMi's has no label `node`."""

MEMORY_FAMILY: Family[ShownDevice] = Family(
    "hami_container_device_memory_bytes", "Device memory the container uses, in bytes", used("total")
)
"""Its form up to HAMi 2.8 has amounts as labels."""
SHARE_FAMILIES: tuple[Family[ShownDevice], ...] = (
    Family(
        "hami_vgpu_memory_used_bytes",
        "Device memory the container uses, in bytes",
        used("total"),
    ),
    Family(
        "hami_vgpu_memory_limit_bytes",
        "Device memory the container may use, in bytes; 0 is no limit",
        lambda shown: shown.memory_limit_bytes,
    ),
    MEMORY_FAMILY,
    Family(
        "hami_container_device_utilization_ratio",
        "Device time of the container's processes, summed, in percent",
        used("sm"),
    ),
    Family(
        "hami_container_last_kernel_elapsed_seconds",
        "Time since the container's last kernel launch, in seconds",
        lambda shown: shown.idle_seconds,
    ),
    Family(
        "hami_vgpu_memory_context_bytes",
        "Device memory of the container's contexts, in bytes",
        part("context"),
    ),
    Family(
        "hami_vgpu_memory_module_bytes",
        "Device memory of the container's modules, in bytes",
        part("module"),
    ),
    Family(
        "hami_vgpu_memory_buffer_bytes",
        "Device memory the container's programs allocated, in bytes",
        part("data"),
    ),
)

MIG_FAMILY: Family[None] = Family("hami_mig_device_info", "A MIG instance and its container, always 1", lambda _: 1.0)
LEGACY_NAMES = {
    "hami_host_gpu_memory_used_bytes": "HostGPUMemoryUsage",
    "hami_host_gpu_utilization_ratio": "HostCoreUtilization",
    "hami_vgpu_memory_used_bytes": "vGPU_device_memory_usage_in_bytes",
    "hami_vgpu_memory_limit_bytes": "vGPU_device_memory_limit_in_bytes",
    "hami_container_device_utilization_ratio": "Device_utilization_desc_of_container",
    "hami_container_last_kernel_elapsed_seconds": "Device_last_kernel_of_container",
    "hami_container_device_memory_bytes": "Device_memory_desc_of_container",
    "hami_mig_device_info": "MigInfo",
}
"""The names of families up to HAMi 2.8."""

CLAIM: Labels = ("namespace", "pod", "container", "claim", "request")
WAIT: Labels = ("namespace", "pod", "container", "reason")
UNREACHED: Labels = ("namespace", "pod", "container", "kind")


WAIT_FAMILIES: tuple[Family[WaitRecord], ...] = (
    Family(
        "hami_library_waits",
        "Waits of the container's library that are not the driver's, by reason.",
        lambda record: record.waits,
        COUNTER,
    ),
    Family(
        "hami_library_wait_seconds",
        "Time of these waits, summed over them.",
        lambda record: record.nanoseconds * 1e-9,
        COUNTER,
    ),
    Family(
        "hami_library_wait_longest_seconds",
        "The longest of these waits since the container started.",
        lambda record: record.longest_microseconds * 1e-6,
    ),
)


def wait_families(usages: Iterable[tuple[Labels, ContainerUsage]]) -> Iterator[Metric]:
    """Yield every family of what libraries wait for; *usages* come with namespace, Pod and container."""
    places = [(named(WAIT, (*labels, one.reason)), one) for labels, usage in usages for one in usage.waits]
    return (family.of(WAIT, places) for family in WAIT_FAMILIES)


def unreached_family(usages: Iterable[tuple[Labels, ContainerUsage]]) -> Metric:
    """Return the family of what libraries do not reach; *usages* come with namespace, Pod and container."""
    rows = (
        (named(UNREACHED, (*labels, kind)), count)
        for labels, usage in usages
        for kind, count in (
            ("dlmopen", usage.unreached.namespaces),
            ("second-driver", usage.unreached.second_drivers),
        )
        if count
    )
    return filled(
        "hami_library_unreached",
        "Uses of the driver past the container's library: libraries opened with dlmopen, second copies of the driver.",
        UNREACHED,
        rows,
        COUNTER,
    )


def claim_family(users: Iterable[Labels]) -> Metric:
    """Return the family that names the claim of each container, which has the values of CLAIM."""
    return filled(
        "hami_claim_info",
        "The request of a ResourceClaim that a container uses, always 1. Containers that use the same one share its "
        "memory and compute, and each of them shows the use of all.",
        CLAIM,
        ((named(CLAIM, labels), 1.0) for labels in users),
    )


def families(observation: Observation, *, has_legacy_names: bool = False) -> list[Metric]:
    """Return every family of *observation*; *has_legacy_names* adds those under HAMi's names up to 2.8."""
    shown = list(shown_devices(observation))
    shares = [(one.labels, one) for one in shown]
    # `device_type` repeats NVIDIA if the name contains it, as in HAMi.
    hosts = [
        ((observation.node_name, str(device.index), device.uuid, f"NVIDIA-{device.name}"), device)
        for device in observation.host_devices
    ]
    instances = list(mig_instances(observation))
    result: list[Metric] = [
        *_filled(HOST_FAMILIES, HOST, hosts),
        *_filled([CONTROLLER_FAMILY], HOST[1:], [(values[1:], device) for values, device in hosts]),
        *_filled(SHARE_FAMILIES, SHARE, shares),
        *_filled([MIG_FAMILY], MIG, [((*share, *instance), None) for share, instance in instances]),
        *device_families(observation.node_name, observation.host_devices),
        *own_share_families(shown),
        *wait_families(library_usages(observation)),
        unreached_family(library_usages(observation)),
        claim_family(claim_users(observation)),
    ]
    if has_legacy_names:
        result += [
            *_filled(_legacy(HOST_FAMILIES), LEGACY_HOST, hosts),
            *_filled(_legacy(one for one in SHARE_FAMILIES if one is not MEMORY_FAMILY), LEGACY_SHARE, shares),
            *_filled(_legacy([MEMORY_FAMILY]), LEGACY_MEMORY, [(_with_amounts(one), one) for one in shown]),
            *_filled(_legacy([MIG_FAMILY]), LEGACY_MIG, [((*share, gpu), None) for share, (_, _, gpu, _) in instances]),
        ]
    return result


def _filled(of: Iterable[Family[T]], labels: Labels, things: Iterable[tuple[Labels, T]]) -> list[Metric]:
    """Return the families *of* the same *things*, each of which has the values of its *labels* beside it."""
    places = [({"zone": ZONE, **named(labels, values)}, one) for values, one in things]
    return [family.of(("zone", *labels), places) for family in of]


def _legacy(of: Iterable[Family[T]]) -> list[Family[T]]:
    """Return those of the families *of* that HAMi had up to 2.8, under their names of then."""
    return [
        replace(one, name=LEGACY_NAMES[one.name], documentation=f"Name up to HAMi 2.8 of {one.name}")
        for one in of
        if one.name in LEGACY_NAMES
    ]


def _with_amounts(shown: ShownDevice) -> Labels:
    """Return the labels of a family in which amounts are labels. As in HAMi, the last is the sum minus the others."""
    sums = shown.sums or DeviceSums()
    parts = (sums.context, sums.module, sums.data)
    return (*shown.labels, *map(str, (*parts, max(0, sums.total - sum(parts)))))
