"""
What must hold in a calm: nothing is owed, the invariants hold, and a few Pods run that are created now.

Neighbours: `harness.invariants` and `harness.history` know the rules, `usage` compares one calm with another.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from harness.history.findings import Rule
from harness.invariants import INVARIANTS, View, i7_waiting_pod_says_why, look
from harness.manifests import SLEEP, a_pod
from minicluster.client import ApiError
from soak.cluster import SoakCluster, name_of
from soak.load import FREE, MAY_FAIL
from soak.usage import Usage, filter_p99_seconds, measure
from testbed.waiting import NotInTimeError, eventually

CALM_SECONDS = 120.0
"""How long a cluster may take until nothing is owed: a Pod may wait 90 s, and a dead leader has a Lease."""
OWED = {Rule.LOCK, Rule.LOST}
"""The rules about what must happen some time. They are judged after each calm, when nothing has hindered it."""
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
    """Judge *cluster* after its faults have ended; nobody creates or deletes a Pod meanwhile. *name* is unique."""
    begin = time.time()
    problems: list[str] = []
    try:
        await cluster.all_ready()
    except NotInTimeError as error:
        return Calm([f"not ready: {error}"], time.time() - begin, {}, 0.0, 0.0)
    problems += await _problems(cluster, begin, says_why=False)
    seconds = time.time() - begin
    # These Pods also wake up those that wait, so an Event that was lost is written again.
    writes_per_pod = await _probe(cluster, name, problems)
    problems += await _problems(cluster, time.time(), says_why=True)
    text = await cluster.metrics("scheduler")
    return Calm(problems, seconds, await measure(cluster), writes_per_pod, filter_p99_seconds(text))


async def safety_findings(cluster: SoakCluster) -> list[str]:
    """Judge the history up to now, and return the rules that were broken at a version."""
    assert cluster.recorder is not None
    with suppress(ApiError, NotInTimeError):  # the API server is away, or its watches are late; judged the next time
        await cluster.recorder.settle()
    return [str(found) for found in cluster.recorder.findings if found.rule not in OWED]


async def _problems(cluster: SoakCluster, begin: float, *, says_why: bool) -> list[str]:
    """Wait until nothing is wrong, and return what still is after CALM_SECONDS, if it has been so since *begin*."""

    async def is_calm() -> bool:
        view = await look(cluster)
        return not [*_broken(view, says_why), *view.judge.debts()]

    try:
        await eventually(is_calm, "the cluster is at rest", CALM_SECONDS)
    except NotInTimeError as error:
        try:
            view = await look(cluster)
        except (ApiError, LookupError, NotInTimeError) as why:
            return [f"at rest: {error}: {why!r}"]
        new = set(view.judge.debts()) - set(view.judge.debts(since=begin))
        found = [each for each in _broken(view, says_why) if not any(each.endswith(debt) for debt in new)]
        return [f"at rest: {each}" for each in found]
    return []


def _broken(view: View, says_why: bool) -> Iterator[str]:
    for law in INVARIANTS:
        if says_why or law is not i7_waiting_pod_says_why:
            for sentence in law(view):
                yield f"{law.__name__}: {sentence}"
    yield from _stuck(view)


def _stuck(view: View) -> Iterator[str]:
    """Yield the Pods that are bound and do not run, and those that do not end."""
    for pod in view.pods:
        if "deletionTimestamp" in pod["metadata"]:
            yield f"Pod {name_of(pod)} is still being deleted"
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending" and not _may_fail(pod):
            waiting = [each.get("state") for each in pod["status"].get("containerStatuses", [])]
            yield f"Pod {name_of(pod)} is bound to {pod['spec']['nodeName']} and does not start: {waiting}"


def _may_fail(pod: dict[str, object]) -> bool:
    metadata = pod["metadata"]
    return isinstance(metadata, dict) and MAY_FAIL in (metadata.get("labels") or {})


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
