"""
`kubectl hami doctor` finds nothing wrong with a healthy cluster, and finds what is broken in it.
"""

from hami_monitor.adapters.processes import is_in_nodes_pid_namespace
from harness.client import asked, asked_json
from harness.cluster import Cluster
from harness.embedded import EmbeddedCluster


def not_good(cluster: Cluster) -> dict[str, str]:
    """Return what is not good on a healthy cluster: no watchdog works in a pid namespace, as the real Nodes are."""
    is_watched = isinstance(cluster, EmbeddedCluster) and is_in_nodes_pid_namespace()
    return {} if is_watched else {"enforcement": "doubtful"}


async def healths(cluster: Cluster) -> dict[str, str]:
    """Return the verdict of each check."""
    [found] = await asked_json(cluster, "doctor")
    return {check["name"]: check["health"] for check in found["checks"]}


async def test_healthy_cluster_has_only_good_checks(cluster: Cluster) -> None:
    """Otherwise nobody would read it."""
    answer = await asked(cluster, "doctor")

    rows = [row.split()[:2] for row in answer.output.splitlines()[1:] if " good " not in row]
    assert (not_good(cluster), "", 0) == (dict(rows), answer.errors, answer.code)


async def test_webhook_that_may_be_passed_by_is_found(cluster: Cluster) -> None:
    """With failurePolicy Ignore a Pod gets a whole device while the webhook is down."""
    path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/hami-webhook"
    hooks = (await cluster.api.get(path))["webhooks"]
    await cluster.api.patch(path, {"webhooks": [{**hook, "failurePolicy": "Ignore"} for hook in hooks]})
    try:
        found = await healths(cluster)
    finally:
        await cluster.api.patch(path, {"webhooks": hooks})

    assert {"webhook": "doubtful", **not_good(cluster)} == {
        name: health for name, health in found.items() if health != "good"
    }
