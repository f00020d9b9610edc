"""
What must hold in a calm: nothing is owed, the invariants hold, and a few Pods run that are created now.

Neighbours: `harness.rest` knows the rules, `usage` compares one calm with another.
"""

import asyncio
import time
from dataclasses import dataclass

from hamicommon.wire.node_devices import decode_node_devices
from harness.invariants import INVENTORY
from harness.manifests import SLEEP, a_pod
from harness.rest import debts
from minicluster.client import ApiError
from soak.cluster import Counts, SoakCluster
from soak.load import FREE, MAY_FAIL
from soak.usage import Usage, filter_p99_seconds, measure
from testbed.waiting import NotInTimeError, eventually

CALM_SECONDS = 120.0
"""How long a cluster may take until nothing is owed: a Pod may wait 90 s, and a dead leader has a Lease."""
PROBES = 8
"""How many Pods are created in each calm, all at once."""
PROBE_SECONDS = 90.0
WRITES = {"create", "update", "patch", "delete"}


@dataclass(frozen=True)
class Calm:
    """What was found and measured in one calm."""

    problems: list[str]
    seconds: float
    """Until nothing was owed."""
    usage: dict[str, Usage]
    """Of each part, the most of its processes."""
    writes_per_pod: float
    """Of the services, for the Pods that were created in the calm."""
    filter_p99_seconds: float


async def rest(cluster: SoakCluster, name: str) -> Calm:
    """Judge *cluster* after its faults have ended; nobody else creates or deletes a Pod meanwhile. *name* is unique."""
    begin = time.time()
    problems: list[str] = []
    try:
        await cluster.all_ready()
        await _offers_as_at_first(cluster)
    except NotInTimeError as error:
        return Calm([f"not ready: {error}"], time.time() - begin, {}, 0.0, 0.0)
    problems += await debts(cluster, begin, CALM_SECONDS, says_why=False, may_fail=_may_fail)
    seconds = time.time() - begin
    await _make_room(cluster)
    # These Pods also wake up those that wait, so an Event that was lost is written again.
    writes_per_pod = await _probe(cluster, name, problems)
    problems += await debts(cluster, time.time(), CALM_SECONDS, may_fail=_may_fail)
    text = await cluster.metrics("scheduler")
    return Calm(problems, seconds, await measure(cluster), writes_per_pod, filter_p99_seconds(text))


async def _offers_as_at_first(cluster: SoakCluster) -> None:
    """
    Wait until every Node offers what it did in the first calm: a device plugin takes a restored config after a while.

    A Pod that is granted by more shares than there are a moment later does not start. Raises: NotInTimeError.
    """
    if not cluster.first_counts:
        cluster.first_counts = await _counts(cluster)

    async def is_so() -> bool:
        return await _counts(cluster) == cluster.first_counts

    await eventually(is_so, "every Node offers what it did in the first calm", CALM_SECONDS)


async def _counts(cluster: SoakCluster) -> dict[str, Counts]:
    nodes, _ = await cluster.api.list("/api/v1/nodes")
    texts = {node["metadata"]["name"]: node["metadata"].get("annotations", {}).get(INVENTORY) for node in nodes}
    return {
        name: {device.id: device.count for device in decode_node_devices(text)} for name, text in texts.items() if text
    }


def _may_fail(pod: dict[str, object]) -> bool:
    metadata = pod["metadata"]
    return isinstance(metadata, dict) and MAY_FAIL in (metadata.get("labels") or {})


async def _make_room(cluster: SoakCluster) -> None:
    """Delete the Pods that wait, and every second one that has a Node, so that the probes fit."""
    path = f"/api/v1/namespaces/{FREE}/pods"
    pods, _ = await cluster.api.list(path)
    waiting = [pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName")]
    placed = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
    names = {*waiting, *placed[::2]}
    await asyncio.gather(*(cluster.api.delete_if_exists(f"{path}/{each}", 1) for each in names))

    async def are_gone() -> bool:
        return names.isdisjoint(pod["metadata"]["name"] for pod in (await cluster.api.list(path))[0])

    await eventually(are_gone, "there is room for the probes", CALM_SECONDS)


async def _probe(cluster: SoakCluster, name: str, problems: list[str]) -> float:
    """Create PROBES Pods, wait until they run, delete them, and return how many writes each of them cost."""
    cluster.namespace = FREE
    names = [f"probe-{name}-{number}" for number in range(PROBES)]
    async with cluster.counted() as requests:
        try:
            for each in names:
                await cluster.create(a_pod(each, command=SLEEP, gpu=1, gpumem=300))
        except ApiError as error:
            problems.append(f"probe: {error}")
        waits = (cluster.pod_in_phase(each, "Running", PROBE_SECONDS) for each in names)
        for found in await asyncio.gather(*waits, return_exceptions=True):
            if isinstance(found, BaseException):
                problems.append(f"probe: {found}")
        await asyncio.gather(*(cluster.delete_pod(each) for each in names), return_exceptions=True)
    writes = sum(
        count
        for (agent, verb, resource), count in requests.items()
        if agent.startswith("hami-") and verb in WRITES and resource not in {"leases", "events"}
    )
    return writes / PROBES
