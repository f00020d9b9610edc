"""
What must hold when a cluster is at rest, whatever happened before: I1 to I10.

Each `iN_…` takes a `View` of the API server, the containers and the services' metrics, and yields one sentence for each
violation. `check` calls all of them after every end-to-end test. I8 and I9 are properties of functions; the property
tests of the webhook and of the codecs check them. I9 is also checked here, on the objects of the cluster.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hamicommon.errors import HamiError
from hamicommon.model import Device, Share
from hamicommon.wire import keys
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container
from hamicommon.wire.region import Region, decode_region
from harness.cluster import Cluster
from minicluster.client import Object
from testbed.waiting import NotInTimeError, eventually

ALLOCATED = "hami.io/vgpu-devices-allocated"
INVENTORY = "hami.io/node-nvidia-register"
LOCK_SECONDS = 300.0
EVENT_SECONDS = 5.0
REST_SECONDS = 10.0
MIB = 2**20

Samples = dict[str, list[tuple[dict[str, str], float]]]
"""A scrape: for each metric name its samples, each with labels and value."""


@dataclass(frozen=True)
class Grant:
    """A container's share of one device, read from its bound Pod."""

    pod: Object
    container: str
    is_init: bool
    share: Share

    @property
    def node(self) -> str:
        """The Node the Pod is bound to."""
        name: str = self.pod["spec"]["nodeName"]
        return name

    def __str__(self) -> str:
        meta = self.pod["metadata"]
        return f"{meta['namespace']}/{meta['name']} {self.container} on {self.share.uuid}"


@dataclass(frozen=True)
class View:
    """The state of the cluster at one moment."""

    nodes: list[Object]
    pods: list[Object]
    events: list[Object]
    scheduler: Samples
    monitors: dict[str, Samples]
    """By Node."""
    environments: dict[tuple[str, str], dict[str, str]]
    """Of running containers, by Pod UID and container."""
    regions: dict[tuple[str, str], Region]
    """By Pod UID and container."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    def grants(self) -> Iterator[Grant]:
        """Yield the grants of bound Pods that have not ended."""
        for pod in self.pods:
            if not pod["spec"].get("nodeName") or pod["status"].get("phase") in {"Succeeded", "Failed"}:
                continue
            text = pod["metadata"].get("annotations", {}).get(ALLOCATED)
            if text is None:
                continue
            inits = [container["name"] for container in pod["spec"].get("initContainers", [])]
            names = inits + [container["name"] for container in pod["spec"]["containers"]]
            by_container = shares_by_container(decode_pod_devices(text), len(names))
            for name, shares in zip(names, by_container, strict=True):
                for share in shares:
                    yield Grant(pod, name, name in inits, share)


def samples(text: str) -> Samples:
    """Parse one scrape."""
    found: Samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    return found


async def look(cluster: Cluster) -> View:
    """Read the state of *cluster*."""
    nodes, _ = await cluster.api.list("/api/v1/nodes")
    pods, _ = await cluster.api.list("/api/v1/pods")
    events, _ = await cluster.api.list("/api/v1/events")
    running = running_containers(pods)
    return View(
        nodes,
        pods,
        events,
        samples(await cluster.metrics("scheduler")),
        {node.name: samples(await cluster.metrics(f"monitor-{node.name}")) for node in cluster.nodes},
        {key: cluster.environment(pod, key[1]) for key, pod in running.items()},
        {
            key: decode_region(content)
            for key, pod in running.items()
            for content in regions(cluster.vgpu_folder(pod["spec"]["nodeName"]), *key)
        },
    )


def running_containers(pods: list[Object]) -> dict[tuple[str, str], Object]:
    """
    Return the Pod of each running container except init containers, by Pod UID and container.

    Pods that are being deleted are left out: the kubelet writes that their containers have ended when the last one has.
    """
    return {
        (pod["metadata"]["uid"], status["name"]): pod
        for pod in pods
        if "deletionTimestamp" not in pod["metadata"]
        for status in pod["status"].get("containerStatuses", [])
        if "running" in status.get("state", {})
    }


def regions(vgpu: Path, pod_uid: str, container: str) -> list[bytes]:
    """Return the regions of a container. There is none before its first CUDA call."""
    files = (vgpu / "containers" / f"{pod_uid}_{container}").glob("*.cache")
    return [content for content in (path.read_bytes() for path in files) if any(content[:4])]


def inventory(view: View) -> dict[str, dict[str, Device]]:
    """Return each Node's devices by UUID."""
    return {
        node["metadata"]["name"]: {
            device.id: device for device in decode_node_devices(node["metadata"]["annotations"][INVENTORY])
        }
        for node in view.nodes
        if INVENTORY in node["metadata"].get("annotations", {})
    }


def peaks(view: View) -> dict[tuple[str, str], dict[str, list[Share]]]:
    """
    Return the most that each Pod holds of each device: by `(node, uuid)`, then by Pod UID, its shares.

    Init containers run one after the other, before the other containers. So a Pod holds its largest init container or
    the sum of the others, whichever is larger. Once the init containers have succeeded, only the sum counts.
    """
    held: dict[tuple[str, str], dict[str, list[Share]]] = defaultdict(dict)
    by_pod: dict[tuple[str, str, str], dict[bool, list[Share]]] = defaultdict(lambda: {True: [], False: []})
    done = {pod["metadata"]["uid"] for pod in view.pods if _inits_done(pod)}
    for grant in view.grants():
        uid = grant.pod["metadata"]["uid"]
        by_pod[grant.node, grant.share.uuid, uid][grant.is_init].append(grant.share)
    for (node, uuid, uid), shares in by_pod.items():
        largest = [] if uid in done else sorted(shares[True], key=lambda share: share.memory_mib)[-1:]
        peak = max(largest, shares[False], key=lambda group: sum(share.memory_mib for share in group))
        if peak:
            held[node, uuid][uid] = peak
    return held


def _inits_done(pod: Object) -> bool:
    statuses = pod["status"].get("initContainerStatuses", [])
    return bool(statuses) and all(
        status.get("state", {}).get("terminated", {}).get("exitCode") == 0 for status in statuses
    )


def i1_no_device_is_over_its_capacity(view: View) -> Iterator[str]:
    """No device has more memory, cores or replicas allocated than it has, and an exclusive share is alone."""
    devices = inventory(view)
    for (node, uuid), holders in peaks(view).items():
        device = devices.get(node, {}).get(uuid)
        if device is None:
            yield f"{node}: device {uuid} is allocated and not in the inventory"
            continue
        shares = [share for group in holders.values() for share in group]
        memory_mib = sum(share.memory_mib for share in shares)
        core_percent = sum(share.core_percent for share in shares)
        if memory_mib > device.memory_mib:
            yield f"{uuid}: {memory_mib} MiB allocated of {device.memory_mib}"
        if core_percent > device.core_percent:
            yield f"{uuid}: {core_percent} % of cores allocated of {device.core_percent}"
        if len(shares) > device.count:
            yield f"{uuid}: {len(shares)} shares allocated of {device.count} replicas"
        if any(share.core_percent == 100 for share in shares) and len(holders) > 1:
            yield f"{uuid}: an exclusive share has neighbours"


def i2_container_got_what_was_granted(view: View) -> Iterator[str]:
    """The container's environment and its region have the limits that were granted, if it has the library."""
    devices = inventory(view)
    by_container: dict[tuple[str, str], list[Grant]] = defaultdict(list)
    for grant in view.grants():
        by_container[grant.pod["metadata"]["uid"], grant.container].append(grant)
    for key, told in view.environments.items():
        grants = by_container.get(key, [])
        expected = {f"CUDA_DEVICE_MEMORY_LIMIT_{i}": f"{g.share.memory_mib}m" for i, g in enumerate(grants)}
        actual = {name: value for name, value in told.items() if name.startswith("CUDA_DEVICE_MEMORY_LIMIT")}
        is_bare = not actual and _may_be_bare(grants, devices)
        if actual != expected and not is_bare:
            yield f"{key}: granted {expected}, environment has {actual}"
        uuids = ",".join(grant.share.uuid for grant in grants)
        order = told.get("HAMI_DEVICE_UUIDS", told.get("NVIDIA_VISIBLE_DEVICES"))
        if grants and order != uuids and not (is_bare and order == "void"):
            yield f"{key}: granted {uuids}, the environment lists {order}"
        region = view.regions.get(key)
        if region is not None:
            limits = {grant.share.uuid: grant.share.memory_mib * MIB for grant in grants}
            found = dict(zip(region.uuids, region.memory_limits_bytes, strict=False))
            if {uuid: found.get(uuid) for uuid in limits} != limits:
                yield f"{key}: region limits {found}, granted {limits}"


def _may_be_bare(grants: list[Grant], devices: dict[str, dict[str, Device]]) -> bool:
    """Return whether a container may have no library: it has whole devices, or its Pod demands the driver's limit."""
    return all(
        grant.pod["metadata"]["annotations"].get("hami.io/enforcement") == "driver"
        or (
            grant.share.core_percent == 100
            and grant.share.memory_mib == devices[grant.node][grant.share.uuid].memory_mib
        )
        for grant in grants
    )


def i3_scheduler_agrees_with_the_api_server(view: View) -> Iterator[str]:
    """The ledger equals a recomputation from the API server's objects, and the ledger found no drift itself."""
    for labels, value in view.scheduler.get("hami_scheduler_ledger_drift_total", []):
        if value:
            yield f"ledger drift {value} {labels}"
    expected = {
        (node, uuid): float(sum(share.memory_mib for group in holders.values() for share in group) * MIB)
        for (node, uuid), holders in peaks(view).items()
    }
    actual = {
        (labels["node"], labels["device_uuid"]): value
        for labels, value in view.scheduler.get("hami_gpu_memory_allocated_bytes", [])
        if value
    }
    if actual != expected:
        yield f"the scheduler counts {actual}, the API server's Pods hold {expected}"


def i4_no_grant_outlives_its_pod(view: View) -> Iterator[str]:
    """The monitors export only Pods that exist."""
    living = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in view.pods}
    for node, scrape in view.monitors.items():
        for labels, _ in scrape.get("hami_vgpu_memory_limit_bytes", []):
            if (labels["namespace"], labels["pod"]) not in living:
                yield f"the monitor of {node} exports {labels['namespace']}/{labels['pod']}, which does not exist"


def i5_nothing_is_held_at_rest(view: View) -> Iterator[str]:
    """No node lock is old, and no reservation is left."""
    for node in view.nodes:
        text = node["metadata"].get("annotations", {}).get(keys.NODE_LOCK)
        if text is not None and decode_node_lock(text).time.age(view.now).total_seconds() > LOCK_SECONDS:
            yield f"{node['metadata']['name']}: lock {text} is older than {LOCK_SECONDS:g} s"
    for labels, value in view.scheduler.get("hami_scheduler_reservations", []):
        if value:
            yield f"{value:g} reservations are left {labels}"


def i7_waiting_pod_says_why(view: View) -> Iterator[str]:
    """Every pending Pod has an Event with a reason."""
    explained = {event["involvedObject"].get("uid") for event in view.events if event.get("reason")}
    for pod in view.pods:
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        waits = not pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending"
        if waits and (view.now - made).total_seconds() > EVENT_SECONDS and pod["metadata"]["uid"] not in explained:
            yield f"Pod {pod['metadata']['name']} is pending without an Event that says why"


def i9_every_annotation_is_readable(view: View) -> Iterator[str]:
    """Our codecs decode what our services wrote."""
    try:
        inventory(view)
        list(view.grants())
    except HamiError as error:
        yield str(error)


def i10_region_adds_up(view: View) -> Iterator[str]:
    """No process has negative usage, and no container uses more than its limit."""
    for key, region in view.regions.items():
        for device in range(region.device_count):
            used = [slot.memory[device].total for slot in region.slots if slot.status and device in slot.memory]
            limit = region.memory_limits_bytes[device]
            if any(value < 0 or value >= 2**63 for value in used):
                yield f"{key}: device {device} has impossible usage {used}"
            if limit and sum(used) > limit:
                yield f"{key}: device {device} uses {sum(used)} of {limit} bytes"


INVARIANTS: tuple[Callable[[View], Iterable[str]], ...] = (
    i9_every_annotation_is_readable,
    i1_no_device_is_over_its_capacity,
    i2_container_got_what_was_granted,
    i3_scheduler_agrees_with_the_api_server,
    i4_no_grant_outlives_its_pod,
    i5_nothing_is_held_at_rest,
    i7_waiting_pod_says_why,
    i10_region_adds_up,
)
"""The invariants of one state. I6 compares two states; see `environments_of`."""


async def broken(cluster: Cluster) -> list[str]:
    """Return one sentence for each violation in the present state."""
    view = await look(cluster)
    return [f"{law.__name__}: {sentence}" for law in INVARIANTS for sentence in law(view)]


async def check(cluster: Cluster) -> None:
    """Wait REST_SECONDS for the invariants to hold. Raises: AssertionError with every violation."""

    async def holds() -> bool:
        return not await broken(cluster)

    try:
        await eventually(holds, "the invariants hold", REST_SECONDS)
    except NotInTimeError as error:
        raise AssertionError("\n".join(await broken(cluster)) or f"unstable at rest: {error}") from error


async def environments_of(cluster: Cluster) -> dict[tuple[str, str], dict[str, str]]:
    """Return the environment of the namespace's running containers, by Pod UID and container, for I6."""
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods")
    return {key: cluster.environment(pod, key[1]) for key, pod in running_containers(pods).items()}
