"""
What must hold: at every version of the recorded history, and when a cluster is at rest, whatever happened before.

The history's judge (`harness.history`) has the rules for every version: capacity, grants, quotas, containers, locks and
waiting Pods. What only the present state shows is here: each `iN_…` takes a `View` of the judge, the API server and the
services' metrics, and yields one sentence for each violation. `check` waits for all of it after every end-to-end test.
I8 and I9 are properties of functions, which the property tests of the webhook and of the codecs check.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from hamicommon.model import Device, Object
from hamicommon.wire.region.codec import Region, decode_region
from harness.cluster import SCHEDULER_NAME, Cluster
from harness.history.judge import Judge
from harness.recording import judged
from testbed.waiting import NotInTimeError, eventually

INVENTORY = "hami.io/node-nvidia-register"
SCHEDULERS = {SCHEDULER_NAME, "default-scheduler"}
"""Whose Pods are judged. A test may name another scheduler, which nobody runs."""
EVENT_SECONDS = 5.0
REST_SECONDS = 10.0
MIB = 2**20

Samples = dict[str, list[tuple[dict[str, str], float]]]
"""A scrape: for each metric name its samples, each with labels and value."""


@dataclass(frozen=True)
class View:
    """The state of the cluster at one moment."""

    judge: Judge
    """It has judged every version up to this moment."""
    findings: list[str]
    """What it found in the state of a cluster that is not recorded. The tests read what it finds in a history."""
    pods: list[Object]
    events: list[Object]
    scheduler: Samples
    monitors: dict[str, Samples]
    """By Node."""
    regions: dict[tuple[str, str], Region]
    """By Pod UID and container."""
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


def samples(text: str) -> Samples:
    """Parse one scrape."""
    found: Samples = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name].append((sample.labels, sample.value))
    return found


async def look(cluster: Cluster) -> View:
    """Judge the history of *cluster* up to now, look into its containers again, and read its state."""
    async with judged(cluster) as recorder:
        findings = [] if cluster.recorder else [str(finding) for finding in recorder.findings]
    pods, _ = await cluster.api.list("/api/v1/pods")
    events, _ = await cluster.api.list("/api/v1/events")
    return View(
        recorder.judge,
        findings,
        pods,
        events,
        samples(await cluster.metrics("scheduler")),
        {node.name: samples(await cluster.metrics(f"monitor-{node.name}")) for node in cluster.nodes},
        {
            key: decode_region(content)
            for key, pod in running_containers(pods).items()
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


def inventory(view: View) -> dict[str, Mapping[str, Device]]:
    """Return each Node's devices by UUID."""
    return {name: node.devices for name, node in view.judge.nodes().items()}


def i1_state_is_right(view: View) -> Iterator[str]:
    """The judge finds nothing wrong in the present state."""
    yield from view.findings


def i2_region_has_what_was_granted(view: View) -> Iterator[str]:
    """The limits in the region of a container are those that were granted."""
    for (uid, container), region in view.regions.items():
        pod = view.judge.pods.get(uid)
        limits = {share.uuid: share.memory_mib * MIB for share in pod.granted(container)} if pod else {}
        found = dict(zip(region.uuids, region.memory_limits_bytes, strict=False))
        if {uuid: found.get(uuid) for uuid in limits} != limits:
            yield f"{pod} {container}: region limits {found}, granted {limits}"


def i3_scheduler_agrees_with_the_api_server(view: View) -> Iterator[str]:
    """The ledger equals a recomputation from the API server's objects, and the ledger found no drift itself."""
    for labels, value in view.scheduler.get("hami_scheduler_ledger_drift_total", []):
        if value:
            yield f"ledger drift {value} {labels}"
    expected = {place: float(held.memory_mib * MIB) for place, held in view.judge.held().items()}
    actual = {
        (labels["node"], labels["device_uuid"]): value
        for labels, value in view.scheduler.get("hami_gpu_memory_allocated_bytes", [])
        if value
    }
    if actual != expected:
        yield f"the scheduler counts {actual}, the API server's Pods and claims hold {expected}"


def i4_no_grant_outlives_its_pod(view: View) -> Iterator[str]:
    """The monitors export only Pods that exist."""
    living = {(pod["metadata"]["namespace"], pod["metadata"]["name"]) for pod in view.pods}
    for node, scrape in view.monitors.items():
        for labels, _ in scrape.get("hami_vgpu_memory_limit_bytes", []):
            if (labels["namespace"], labels["pod"]) not in living:
                yield f"the monitor of {node} exports {labels['namespace']}/{labels['pod']}, which does not exist"


def i5_nothing_is_held_at_rest(view: View) -> Iterator[str]:
    """No reservation is left, no lock has lost its purpose, and no Pod waits although it fits."""
    yield from view.judge.debts()
    for labels, value in view.scheduler.get("hami_scheduler_reservations", []):
        if value:
            yield f"{value:g} reservations are left {labels}"


def i7_waiting_pod_says_why(view: View) -> Iterator[str]:
    """Every Pod that a scheduler of the cluster has not bound has an Event with a reason."""
    explained = {event["involvedObject"].get("uid") for event in view.events if event.get("reason")}
    for pod in view.pods:
        made = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        is_scheduled_here = pod["spec"].get("schedulerName") in SCHEDULERS
        waits = is_scheduled_here and not pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending"
        if waits and (view.now - made).total_seconds() > EVENT_SECONDS and pod["metadata"]["uid"] not in explained:
            yield f"Pod {pod['metadata']['name']} is pending without an Event that says why"


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
    i1_state_is_right,
    i2_region_has_what_was_granted,
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
