"""
What a cluster at rest owes, after things have gone wrong in it: nothing may be left to do.

Neighbours: `invariants` and `history` know the rules. Must never change the cluster.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.history.findings import Rule
from harness.invariants import INVARIANTS, View, i7_waiting_pod_says_why, look
from minicluster.client import ApiError
from testbed.waiting import NotInTimeError, eventually

OWED = {Rule.LOCK, Rule.LOST}
"""The rules about what must happen some time. They are judged at rest, when nothing has hindered it."""

May = Callable[[Object], bool]
"""Takes a Pod."""


def name_of(pod: Object) -> str:
    """Return `namespace/name`."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


async def safety_findings(cluster: Cluster) -> list[str]:
    """Judge the history up to now, and return the rules that were broken at a version."""
    assert cluster.recorder is not None
    with suppress(ApiError, NotInTimeError):  # the API server is away, or its watches are late; judged the next time
        await cluster.recorder.settle()
    return [str(found) for found in cluster.recorder.findings if found.rule not in OWED]


async def debts(
    cluster: Cluster, since: float, seconds: float, *, says_why: bool = True, may_fail: May = lambda _: False
) -> list[str]:
    """
    Wait until nothing is wrong, and return what still is after *seconds*, if it has been so *since* that Unix time.

    With *says_why*, each waiting Pod has an Event that says why. Pods that *may_fail* need not start.
    """

    def broken(view: View) -> Iterator[str]:
        for law in INVARIANTS:
            if says_why or law is not i7_waiting_pod_says_why:
                for sentence in law(view):
                    yield f"{law.__name__}: {sentence}"
        yield from _stuck(view, may_fail)

    async def is_calm() -> bool:
        view = await look(cluster)
        return not [*broken(view), *view.judge.debts()]

    try:
        await eventually(is_calm, "the cluster is at rest", seconds)
    except NotInTimeError as error:
        try:
            view = await look(cluster)
        except (ApiError, LookupError, NotInTimeError) as why:
            return [f"at rest: {error}: {why!r}"]
        new = set(view.judge.debts()) - set(view.judge.debts(since=since))
        found = [each for each in broken(view) if not any(each.endswith(debt) for debt in new)]
        return [f"at rest: {each}" for each in found]
    return []


def _stuck(view: View, may_fail: May) -> Iterator[str]:
    """Yield the Pods that are bound and do not run, and those that do not end."""
    for pod in view.pods:
        if "deletionTimestamp" in pod["metadata"]:
            yield f"Pod {name_of(pod)} is still being deleted"
        elif pod["spec"].get("nodeName") and pod["status"].get("phase") == "Pending" and not may_fail(pod):
            waiting = [each.get("state") for each in pod["status"].get("containerStatuses", [])]
            yield f"Pod {name_of(pod)} is bound to {pod['spec']['nodeName']} and does not start: {waiting}"
