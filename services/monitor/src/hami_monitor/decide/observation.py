"""
Decide what one scrape shows: the host's devices, and the devices of each container with their use.

Owns which containers are shown, and their values before they have used their devices.
Neighbours: `grants` says which devices a container has, `usage` and `host` how they are used, and
`hami_monitor.metrics.families` names the values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from hami_monitor.decide.claims import UsedRequest
from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.driver_use import DeviceUses, DriverUse
from hami_monitor.decide.grants import grants_of
from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.usage import ContainerUsage
from hamicommon.model import Share
from hamicommon.wire.region.records import DeviceRecords
from hamicommon.wire.region.sums import DeviceSums

MIB = 1 << 20

Labels = tuple[str, ...]

_UNUSED = ContainerUsage()
_NO_USE = DeviceSums()


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything one scrape shows."""

    node_name: str
    now_seconds: float
    pods: tuple[MonitoredPod, ...] = ()
    usages: Mapping[ContainerKey, ContainerUsage] = field(default_factory=dict)
    claims: Mapping[ContainerKey, UsedRequest] = field(default_factory=dict)
    """The request of a ResourceClaim that a container uses, of those that use one."""
    refused: frozenset[ContainerKey] = frozenset()
    """Containers whose region cannot be read; their use is not shown."""
    unpreloaded: frozenset[ContainerKey] = frozenset()
    """Containers without the library; their use is what the driver counts."""
    host_devices: tuple[HostDevice, ...] = ()
    device_order: Mapping[str, int] = field(default_factory=dict)
    """Index of each UUID on the host, as the driver last reported it."""
    driver_uses: Mapping[str, DeviceUses] = field(default_factory=dict)
    """What the driver counts for containers, by UUID of the device; devices without it are left out."""


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """One device of one container in the metrics."""

    labels: Labels
    """Namespace, Pod, container, index and UUID of the device."""
    share: Share
    sums: DeviceSums | None
    """None if the region cannot be read, or without a library if the driver does not say it."""
    processes: int | None
    idle_seconds: float | None
    """Since the container's last launch; None before the first."""
    records: DeviceRecords | None = None
    """None if they are unknown: there is no region, or its library keeps none."""
    is_blocked: bool | None = None
    """Whether launches wait for a container of higher priority; None if the region cannot be read."""
    driver: DriverUse | None = None
    """What the driver counts; None if that is unknown."""
    has_library: bool = True
    """Whether a library counts; if not, `sums` has only the total and the device time, as the driver counts them."""

    @property
    def memory_limit_bytes(self) -> int:
        """What the container may use; 0 is no limit."""
        return self.share.memory_mib * MIB

    @property
    def memory_limiters(self) -> tuple[str, ...]:
        """Who limits the container's memory: `library`, `driver`, both, or nobody if it has a whole device."""
        is_limited_by_driver = self.driver is not None and self.driver.is_limited
        return ("library",) * self.has_library + ("driver",) * is_limited_by_driver


def shown_devices(observation: Observation) -> Iterator[ShownDevice]:
    """Yield the granted devices of each container; before its region names them, with use 0."""
    for pod in observation.pods:
        grants = grants_of((pod,))
        for container in pod.containers:
            key = ContainerKey(pod.uid, container)
            if container not in pod.shown or key not in grants:
                continue
            usage = observation.usages.get(key, _UNUSED)
            has_library = key not in observation.unpreloaded
            is_known = has_library and key not in observation.refused
            last = usage.last_kernel_seconds
            idle_seconds = None if last is None else max(0.0, observation.now_seconds - last)
            # The container numbers its devices in the driver's order.
            shares = sorted(grants[key].shares, key=lambda share: observation.device_order.get(share.uuid, 0))
            for index, share in enumerate(shares):
                uses = observation.driver_uses.get(share.uuid)
                driver = None if uses is None else uses.of(key)
                read = usage.devices.get(share.uuid, _NO_USE) if is_known else None
                yield ShownDevice(
                    labels=(pod.namespace, pod.name, container, str(index), share.uuid),
                    share=share,
                    sums=read if has_library else _counted(driver),
                    processes=usage.processes if is_known else None,
                    idle_seconds=idle_seconds,
                    records=usage.records.get(share.uuid),
                    is_blocked=usage.is_blocked if is_known else None,
                    driver=driver,
                    has_library=has_library,
                )


def library_usages(observation: Observation) -> Iterator[tuple[Labels, ContainerUsage]]:
    """Yield the usage of each shown container that has a library, with namespace, Pod and container."""
    for pod in observation.pods:
        for container in pod.containers:
            key = ContainerKey(pod.uid, container)
            if container in pod.shown and key in observation.usages:
                yield (pod.namespace, pod.name, container), observation.usages[key]


def claim_users(observation: Observation) -> Iterator[Labels]:
    """Yield namespace, Pod and container of each shown container with a claim, and the claim and its request."""
    for pod in observation.pods:
        for container in pod.containers:
            used = observation.claims.get(ContainerKey(pod.uid, container))
            if used is not None and container in pod.shown:
                yield pod.namespace, pod.name, container, used.claim, used.request


def mig_instances(observation: Observation) -> Iterator[tuple[Labels, Labels]]:
    """Yield the share's labels of each existing MIG instance, and its own: UUID, profile, both instance ids."""
    for pod in observation.pods:
        for container, mig in pod.mig_allocations:
            if container in pod.shown and mig.mig_uuid is not None:
                share = (pod.namespace, pod.name, container, str(mig.device_index), mig.gpu_uuid)
                yield share, (mig.mig_uuid, mig.profile, str(mig.gpu_instance_id), str(mig.compute_instance_id))


def _counted(driver: DriverUse | None) -> DeviceSums | None:
    """Return what the driver counts in the place of a library; None if it does not say it."""
    if driver is None or driver.used_bytes is None:
        return None
    return DeviceSums(total=driver.used_bytes, sm=round(100 * (driver.busy_ratio or 0.0)))
