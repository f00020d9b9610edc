"""
Placing a Pod takes few writes: one Binding, one phase patch, one Event, and none to a Node.
"""

from harness.cluster import Cluster
from harness.manifests import SLEEP, a_pod
from testbed.waiting import eventually

PODS = 8
READS = {"get", "list", "watch"}


async def told_of(cluster: Cluster, pod: str) -> None:
    """Wait until the Event of the Pod's binding is written. Those of all Pods bound before are written then, too."""

    async def told() -> bool:
        return any(event["reason"] == "BindingSucceed" for event in await cluster.events(pod))

    await eventually(told, f"{pod} has the Event of its binding")


async def test_placed_pod_costs_one_binding_one_patch_and_one_event(cluster: Cluster) -> None:
    """The API server counts the writes of the scheduler and the device plugins."""
    names = [f"p{number}" for number in range(PODS)]
    await cluster.create(a_pod("earlier", command=SLEEP, gpu=1, gpumem=1000))
    await cluster.pod_in_phase("earlier", "Running")
    await told_of(cluster, "earlier")

    async with cluster.counted() as requests:
        for name in names:
            await cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000))
        for name in names:
            await cluster.pod_in_phase(name, "Running")
        for name in names:
            await told_of(cluster, name)

    ours = {key: count for key, count in requests.items() if key[0].startswith("hami-") and key[1] not in READS}
    assert {
        ("hami-scheduler", "create", "pods/binding"): PODS,
        ("hami-scheduler", "create", "events"): PODS,
        ("hami-device-plugin", "patch", "pods"): PODS,
    } == ours
