"""
The whole picture of one cluster: Nodes, their devices, the shares on them, the Pods that wait; and what was
read for it.

`show.form` writes it as JSON, with the names of the fields in camelCase. Memory is in MiB, compute in percent of one
device. None always means unknown: nothing measured it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hamicommon.model import Object


@dataclass(frozen=True, slots=True)
class Share:
    """One container's part of one device."""

    namespace: str
    pod: str
    container: str
    kind: str
    """`app`, `sidecar` or `init`."""
    memory_mib: int
    """Granted."""
    core_percent: int
    """Granted; 0 is no limit."""
    holds: bool = True
    """Whether it counts now; an init container that has succeeded holds nothing."""
    used_memory_mib: int | None = None
    """As the library counts it."""
    limit_memory_mib: int | None = None
    """What the container's limit really is; 0 is no limit."""
    used_core_percent: float | None = None
    """Device time of its kernels over the last seconds."""
    throttled_seconds: float | None = None
    """How long its launches have waited for their part of the device's time, summed since the container started."""
    phase: str = ""
    """HAMi's bind phase of the Pod: `allocating`, `success` or `failed`; empty if nobody wrote one."""
    driver_memory_mib: int | None = None
    """What its processes use, as the driver counts it."""
    claim: str = ""
    """The ResourceClaim that gives it; empty if an annotation does."""
    findings: tuple[str, ...] = ()
    """How the monitor's watchdog has seen it use the device otherwise than granted, such as `memory-above-grant`."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a Node, with its shares."""

    id: str
    """UUID, as the driver prints it."""
    node: str
    index: int
    model: str
    vendor: str
    """The vendor's key, such as `NVIDIA`; empty while it has no share."""
    mode: str
    """`hami-core`, `mig` or `mps`; empty if its plugin names none."""
    replicas: int
    """
    How many shares it may have; 0 if its Node no longer offers it. If no Node could be read, what is granted of a
    device stands for what is offered.
    """
    memory_mib: int
    """Offered."""
    core_percent: int
    """Offered; 100 is one whole device."""
    is_healthy: bool
    is_cordoned: bool
    granted_replicas: int
    granted_memory_mib: int
    granted_core_percent: int
    """What the shares that run at one time take together, at most."""
    used_memory_mib: int | None
    """By every process on it, as the driver counts it."""
    used_core_percent: float | None
    """Time in which it ran kernels, as the driver samples it."""
    temperature_celsius: float | None
    power_watts: float | None
    shares: tuple[Share, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A Node that offers devices, or on which a Pod holds one."""

    name: str
    is_ready: bool
    is_cordoned: bool
    is_measured: bool
    """Whether a monitor answered for it."""
    kind: str
    """`dra` if it shares its devices by ResourceClaims, else `plugin`."""
    devices: tuple[Device, ...]
    """By index."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a ResourceQuota lets a namespace hold of one resource; memory in MiB."""

    resource: str
    limit: int
    held: int


@dataclass(frozen=True, slots=True)
class Namespace:
    """What the Pods of one namespace hold together, and may hold."""

    name: str
    pods: int
    """Those that hold a share."""
    quotas: tuple[Quota, ...]
    """By resource; the strictest where several ResourceQuotas limit one."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A Pod that asks for devices and has no Node."""

    namespace: str
    pod: str
    since: datetime
    """When it was created."""
    asks: str
    """Its containers' requests: `nvidia.com/gpu 1, nvidia.com/gpumem 3000`."""
    cause: str
    """Why no Node takes it, most common cause first; empty if nobody has said."""


@dataclass(frozen=True, slots=True)
class ClusterState:
    """One cluster at one moment."""

    cluster: str
    taken_at: datetime
    nodes: tuple[Node, ...]
    """By name."""
    waiting: tuple[Waiting, ...]
    """Longest first."""
    namespaces: tuple[Namespace, ...]
    """Those with Pods that hold a share or with a quota on one, by name."""
    problems: tuple[str, ...]
    """One sentence for each thing that could not be read or understood."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects and metrics of one cluster. What could not be read is empty, and `problems` says why."""

    name: str
    """The name of the context, or of the archive."""
    taken_at: datetime
    nodes: tuple[Object, ...] = ()
    pods: tuple[Object, ...] = ()
    is_partial: bool = False
    """Whether the Pods are only those of one namespace, because the caller may not list all."""
    refusals: tuple[Object, ...] = ()
    """The Events in which the scheduler says why a Pod fits nowhere."""
    quotas: tuple[Object, ...] = ()
    """The ResourceQuotas, if they were asked for."""
    config_maps: tuple[Object, ...] = ()
    """Those in the namespaces of the services, if they were asked for."""
    claims: tuple[Object, ...] | None = None
    """The ResourceClaims; None if no Node gives devices by them, or they cannot be read."""
    slices: tuple[Object, ...] | None = None
    """The ResourceSlices of our driver, likewise."""
    monitors: Mapping[str, bytes] = field(default_factory=dict)
    """The metrics of each Node's monitor, by Node; no entry if it did not answer."""
    problems: tuple[str, ...] = ()
    """One sentence for each thing that could not be read."""
