"""
Decide what one scrape shows: the host's devices, and the devices of each container with their use.

Owns which containers are shown, and the values of a container that has not used its devices yet.
Neighbours: `usage` and `pods` give the values, `hami_monitor.metrics.families` names them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.usage import ContainerUsage, DeviceUsage

MIB = 1 << 20

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything one scrape shows."""

    node_name: str
    now_seconds: float
    pods: tuple[MonitoredPod, ...] = ()
    usages: Mapping[ContainerKey, ContainerUsage] = field(default_factory=dict)
    refused: frozenset[ContainerKey] = frozenset()
    """Containers whose region cannot be read; they are not shown."""
    host_devices: tuple[HostDevice, ...] = ()
    device_order: Mapping[str, int] = field(default_factory=dict)
    """Index of each UUID on the host, as the driver last reported it."""


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """One device of one container in the metrics."""

    labels: Labels
    """Namespace, Pod, container, index and UUID of the device."""
    device: DeviceUsage
    idle_seconds: float | None
    """Since the container's last launch; None before the first."""


def shown_devices(observation: Observation) -> Iterator[ShownDevice]:
    """Yield the devices of each container: with their use if a region names them, otherwise as granted."""
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


def mig_instances(observation: Observation) -> Iterator[tuple[Labels, Labels]]:
    """Yield the share's labels of each existing MIG instance, and its own: UUID, profile, both instance ids."""
    for pod in observation.pods:
        for container, mig in pod.mig_allocations:
            if container in pod.shown and mig.mig_uuid is not None:
                share = (pod.namespace, pod.name, container, str(mig.device_index), mig.gpu_uuid)
                yield share, (mig.mig_uuid, mig.profile, str(mig.gpu_instance_id), str(mig.compute_instance_id))


def _granted(pod: MonitoredPod, container: str, order: Mapping[str, int]) -> ContainerUsage:
    """
    Return the usage of a container that has not used its devices yet: 0 of what it was granted.

    The container numbers its devices in the driver's order, so *order* (host index by UUID) sorts them. The grant does
    not have the UUID of a MIG instance, so its series start with its region.
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
