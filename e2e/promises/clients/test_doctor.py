"""
`kubectl hami doctor` finds nothing wrong with a healthy cluster, and finds what is broken in it.
"""

from hami_monitor.adapters.processes import is_in_nodes_pid_namespace
from harness.client import asked, asked_json
from harness.cluster import Cluster
from harness.clusters.embedded import EmbeddedCluster
from testbed.waiting import eventually

ELECTION_SECONDS = 60.0
"""In this time a leader is elected, if the test before replaced the one there was."""


def not_good(cluster: Cluster) -> dict[str, str]:
    """Return what is not good on a healthy cluster: no watchdog works in a pid namespace, as the real Nodes are."""
    is_watched = isinstance(cluster, EmbeddedCluster) and is_in_nodes_pid_namespace()
    return {} if is_watched else {"enforcement": "doubtful"}


async def finds(cluster: Cluster, expected: dict[str, str]) -> None:
    """Wait until exactly the checks in *expected* are not good, each with its verdict."""

    async def probe() -> bool:
        [found] = (await asked_json(cluster, "doctor"))["clusters"]
        assert expected == {check["name"]: check["health"] for check in found["checks"] if check["health"] != "good"}
        return True

    await eventually(probe, f"the doctor finds {expected}", ELECTION_SECONDS)


async def test_healthy_cluster_has_only_good_checks(cluster: Cluster) -> None:
    """Otherwise nobody would read it."""
    await finds(cluster, not_good(cluster))
    answer = await asked(cluster, "doctor")

    rows = [row.split()[:2] for row in answer.output.splitlines()[1:] if " good " not in row]
    assert (not_good(cluster), "", 0) == (dict(rows), answer.errors, answer.code)


async def test_webhook_that_may_be_passed_by_is_found(cluster: Cluster) -> None:
    """With failurePolicy Ignore a Pod gets a whole device while the webhook is down."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
    hooks = (await cluster.api.get(path))["webhooks"]
    await cluster.api.patch(path, {"webhooks": [{**hook, "failurePolicy": "Ignore"} for hook in hooks]})
    try:
        await finds(cluster, {"webhook": "doubtful", **not_good(cluster)})
    finally:
        await cluster.api.patch(path, {"webhooks": hooks})
