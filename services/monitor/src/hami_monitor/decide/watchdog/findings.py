"""
Compare what the driver says about processes with the grants and the regions.

A process cannot change what the driver counts for it. The other signs are weaker: a container may write any pid into
its region, may map any file under the library's name, and may call its program as MPS's server is called.
Neighbours: `confirmation` decides when a finding counts, `hami_monitor.serve.watchdog` reads everything.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.grants import grants_of
from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.model import Share
from hamicommon.pod.control_groups import ContainerGroup

TOLERANCE_BYTES = 512 << 20
"""Device memory that the driver may take for a process beside what the library counts."""
MIG_PREFIX = "MIG-"
_MIB = 1 << 20


class Kind(Enum):
    """What a container does otherwise than granted; the value of the metric's label `kind`."""

    MEMORY_ABOVE_GRANT = "memory-above-grant"
    DEVICE_NOT_GRANTED = "device-not-granted"
    LIBRARY_NOT_LOADED = "library-not-loaded"
    NOT_IN_REGION = "not-in-region"
    NOT_IN_NAMESPACE = "not-in-namespace"
    SEVERAL_IN_NAMESPACE = "several-in-namespace"
    WITHOUT_DEVICES = "without-devices"


EVENT_REASONS = {
    Kind.MEMORY_ABOVE_GRANT: "MemoryAboveGrant",
    Kind.DEVICE_NOT_GRANTED: "DeviceNotGranted",
    Kind.LIBRARY_NOT_LOADED: "LibraryNotLoaded",
    Kind.NOT_IN_REGION: "NotInRegion",
    Kind.NOT_IN_NAMESPACE: "NotInNamespace",
    Kind.SEVERAL_IN_NAMESPACE: "SeveralInNamespace",
    Kind.WITHOUT_DEVICES: "ContainerWithoutDevices",
}


@dataclass(frozen=True, slots=True)
class Program:
    """One program that a process runs: a later process with its pid is another one, and so is what it executes."""

    pid: int
    """In the Node's pid namespace."""
    start_ticks: int
    stack_start: int


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A process as the Node's kernel describes it."""

    program: Program
    own_pid: int
    """In its innermost pid namespace, where `getpid` returns it."""
    group: ContainerGroup | None
    """None for a process of the Node itself."""
    has_library: bool | None = None
    """Whether the library is mapped; None if that has not been read."""
    is_mps_server: bool = False
    """Whether it is called as NVIDIA's MPS server, which works for its clients and needs no library."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One device that one container uses."""

    namespace: str
    pod: str
    container: str
    device_uuid: str
    pod_uid: str


@dataclass(frozen=True, slots=True)
class Use:
    """The use of one device by one process of a container."""

    place: Place
    owner: PodOwner
    process: HostProcess
    used_bytes: int
    computes_alone: bool = False
    """Whether it computes and is no client of MPS."""

    @property
    def key(self) -> ContainerKey:
        """The container."""
        return ContainerKey(self.place.pod_uid, self.place.container)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is reported of one container and device."""

    kind: Kind
    place: Place


@dataclass(frozen=True, slots=True)
class Evidence:
    """A finding in one reading, by one program; by the container as a whole if that is None."""

    finding: Finding
    program: Program | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """What the containers of the Node were granted, by container."""

    devices: Mapping[ContainerKey, frozenset[str]] = field(default_factory=dict)
    """UUIDs of the devices, of those with a MIG instance too."""
    shares: Mapping[ContainerKey, tuple[Share, ...]] = field(default_factory=dict)
    """Only of containers that the library limits."""
    unclear: frozenset[ContainerKey] = frozenset()
    """Containers with MIG instances that are granted by their own UUID: the driver lists them under their GPU."""
    unpreloaded: frozenset[ContainerKey] = frozenset()
    """Containers that the device plugin started without the library."""
    in_namespaces: frozenset[ContainerKey] = frozenset()
    """Containers whose compute is limited by a namespace of MPS."""


@dataclass(frozen=True, slots=True)
class Regions:
    """What the regions say."""

    pids: Mapping[ContainerKey, frozenset[int]] = field(default_factory=dict)
    unread: Collection[ContainerKey] = frozenset()
    """Containers whose region cannot be read, which has a metric and an alert."""
    used_bytes: Mapping[ContainerKey, Mapping[str, int]] = field(default_factory=dict)
    """The memory that each container has, by device."""


def grants(
    pods: Iterable[MonitoredPod],
    unpreloaded: frozenset[ContainerKey] = frozenset(),
    in_namespaces: frozenset[ContainerKey] = frozenset(),
) -> Grants:
    """
    Return what *pods* were granted.

    The containers *unpreloaded* were started without the library, those *in_namespaces* with a namespace of MPS.
    """
    known = tuple(pods)
    shares = {key: grant.shares for key, grant in grants_of(known).items()}
    devices: dict[ContainerKey, set[str]] = defaultdict(set)
    for pod in known:
        for container, granted in pod.shares.items():
            devices[ContainerKey(pod.uid, container)].update(share.uuid for share in granted)
        for container, mig in pod.mig_allocations:
            devices[ContainerKey(pod.uid, container)].add(mig.gpu_uuid)
    unclear = {key for key, uuids in devices.items() if any(uuid.startswith(MIG_PREFIX) for uuid in uuids)}
    by_key = {key: frozenset(uuids) for key, uuids in devices.items()}
    return Grants(by_key, shares, frozenset(unclear), unpreloaded, in_namespaces)


def uses(
    devices: Iterable[HostDevice],
    processes: Mapping[int, HostProcess],
    owners: Mapping[str, PodOwner],
    exempt: Collection[str],
) -> tuple[Use, ...]:
    """
    Return the uses of *devices* by containers of *owners*, which has the Pods by UID.

    Processes of the Node, of Pods in the namespaces *exempt*, and of containers that are not known yet are left out.
    """
    return tuple(
        Use(
            Place(owner.namespace, owner.name, container, device.uuid, group.pod_uid),
            owner,
            process,
            listed.used_bytes or 0,
            listed.computes_alone,
        )
        for device in devices
        for listed in device.processes
        if (process := processes.get(listed.pid)) is not None
        and (group := process.group) is not None
        and (owner := owners.get(group.pod_uid)) is not None
        and (container := owner.containers.get(group.container_id)) is not None
        and owner.namespace not in exempt
        and not owner.is_ended
    )


def with_library(found: Iterable[Use], granted: Grants) -> tuple[Use, ...]:
    """Return those of *found* whose process must have the library."""
    return tuple(
        use for use in found if must_have_library(use.place, use.owner, granted) and not use.process.is_mps_server
    )


def must_have_library(place: Place, owner: PodOwner, granted: Grants) -> bool:
    """Return whether the programs of *owner* that use *place* must have the library."""
    key = ContainerKey(place.pod_uid, place.container)
    return (
        place.device_uuid in limited_devices(key, granted)
        and place.container not in owner.without_library
        and key not in granted.unpreloaded
    )


def limit_bytes(place: Place, granted: Grants) -> int:
    """Return the memory that *place* was granted; 0 if it has no limit."""
    shares = granted.shares.get(ContainerKey(place.pod_uid, place.container), ())
    limits = [share.memory_mib * _MIB for share in shares if share.uuid == place.device_uuid]
    # A share of 0 MiB has no limit.
    return sum(limits) if all(limits) else 0


def find(found: Sequence[Use], granted: Grants, regions: Regions) -> dict[Evidence, str]:
    """Return what the uses *found* do otherwise than *granted*, each with one sentence for people."""
    return dict(
        [
            *_memory(found, granted),
            *_devices(found, granted),
            *_outside(found, granted, regions),
            *_alone(found, granted),
            *_several(found, granted),
        ]
    )


def limited_devices(key: ContainerKey, granted: Grants) -> frozenset[str]:
    """Return the UUIDs of the devices of which the container *key* has a share that the library limits."""
    return frozenset() if key in granted.unclear else frozenset(share.uuid for share in granted.shares.get(key, ()))


def _memory(found: Iterable[Use], granted: Grants) -> Iterator[tuple[Evidence, str]]:
    for place, all_uses in _by_place(found).items():
        most, used_bytes = limit_bytes(place, granted), sum(use.used_bytes for use in all_uses)
        if most and used_bytes > most + TOLERANCE_BYTES * len(all_uses):
            yield (
                Evidence(Finding(Kind.MEMORY_ABOVE_GRANT, place)),
                f"Container {place.container} has {used_bytes // _MIB} MiB of device {place.device_uuid} "
                f"in {len(all_uses)} processes, its share is {most // _MIB} MiB",
            )


def _devices(found: Iterable[Use], granted: Grants) -> Iterator[tuple[Evidence, str]]:
    for use in found:
        is_granted = use.place.device_uuid in granted.devices.get(use.key, ())
        # A DRA driver may have given a device to a Pod with claims.
        if is_granted or use.owner.has_claims or use.key in granted.unclear:
            continue
        evidence = Evidence(Finding(Kind.DEVICE_NOT_GRANTED, use.place), use.process.program)
        yield evidence, f"{_process(use)} uses device {use.place.device_uuid}, which was not granted to the container"


def _outside(found: Iterable[Use], granted: Grants, regions: Regions) -> Iterator[tuple[Evidence, str]]:
    for use in with_library(found, granted):
        if use.process.has_library is False:
            kind, problem = Kind.LIBRARY_NOT_LOADED, "without the library, so no limit of the library holds for it"
        elif not _is_in_region(use, regions):
            kind, problem = Kind.NOT_IN_REGION, "but is not in the container's region, so its use is not counted"
        else:
            continue
        evidence = Evidence(Finding(kind, use.place), use.process.program)
        yield evidence, f"{_process(use)} uses device {use.place.device_uuid} {problem}"


def _alone(found: Iterable[Use], granted: Grants) -> Iterator[tuple[Evidence, str]]:
    for use in found:
        if use.computes_alone and use.key in granted.in_namespaces:
            evidence = Evidence(Finding(Kind.NOT_IN_NAMESPACE, use.place), use.process.program)
            without = "outside its namespace of MPS, so without a limit on compute"
            yield evidence, f"{_process(use)} uses device {use.place.device_uuid} {without}"


def _several(found: Iterable[Use], granted: Grants) -> Iterator[tuple[Evidence, str]]:
    """MPS limits each process, not the processes of a namespace together."""
    clients = (use for use in found if use.key in granted.in_namespaces and not use.computes_alone)
    for place, uses_of_one in _by_place(clients).items():
        if len(uses_of_one) > 1:
            yield (
                Evidence(Finding(Kind.SEVERAL_IN_NAMESPACE, place)),
                f"Container {place.container} has {len(uses_of_one)} processes on device {place.device_uuid}, and MPS "
                "gives the percentage of their namespace to each of them",
            )


def _by_place(found: Iterable[Use]) -> dict[Place, list[Use]]:
    by_place: dict[Place, list[Use]] = defaultdict(list)
    for use in found:
        by_place[use.place].append(use)
    return by_place


def _is_in_region(use: Use, regions: Regions) -> bool:
    pids = regions.pids.get(use.key, frozenset())
    return use.key in regions.unread or use.process.own_pid in pids or use.process.program.pid in pids


def _process(use: Use) -> str:
    own_pid, pid = use.process.own_pid, use.process.program.pid
    on_node = "" if own_pid == pid else f" ({pid} on the Node)"
    return f"Process {own_pid}{on_node} of container {use.place.container}"
