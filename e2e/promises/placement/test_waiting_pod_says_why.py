"""
A Pod that fits on no Node says why, causes no load, and starts once its share is free.
"""

import asyncio

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.manifests import a_pod
from minicluster.client import ApiError
from testbed.waiting import eventually

A100 = {"nvidia.com/use-gputype": "A100"}


async def reasons(cluster: Cluster, pod: str) -> list[str]:
    """Return the messages of the Pod's FilteringFailed Events."""
    return [event["message"] for event in await cluster.events(pod) if event["reason"] == "FilteringFailed"]


async def test_rejected_pod_has_an_event_with_a_stable_code(cluster: Cluster) -> None:
    """HAMi's code is in the Event, so that existing runbooks keep working."""
    await cluster.create(a_pod("huge", gpu=1, gpumem=999_000))

    async def explained() -> list[str]:
        return await reasons(cluster, "huge")

    messages = await eventually(explained, "huge has an Event")

    assert "CardInsufficientMemory" in " ".join(messages)
    assert "Pending" == (await cluster.pod("huge"))["status"]["phase"]


async def test_pending_pod_starts_when_another_ends(cluster: Cluster) -> None:
    """A share that becomes free is used at once, without a timer."""
    await cluster.create(a_pod("resident", annotations=A100, gpu=2, gpumem=30000, gpucores=10))
    await cluster.pod_in_phase("resident", "Running")
    await cluster.create(a_pod("large", annotations=A100, gpu=1, gpumem=20000))

    async def waits() -> bool:
        return bool(await reasons(cluster, "large"))

    await eventually(waits, "large waits")
    await cluster.delete_pod("resident")

    await cluster.pod_in_phase("large", "Running")


async def test_rejection_causes_no_retries(cluster: Cluster) -> None:
    """FailedNodes has only codes. kube-scheduler would write a changing text into the Pod and retry it for ever."""
    await cluster.create(a_pod("huge", gpu=1, gpumem=999_000))

    async def refused() -> bool:
        return bool(await reasons(cluster, "huge"))

    async def version() -> str:
        return str((await cluster.pod("huge"))["metadata"]["resourceVersion"])

    await eventually(refused, "huge is rejected")
    await asyncio.sleep(1)
    before = await version()
    await asyncio.sleep(4)

    assert before == await version()


async def test_quota_of_memory_is_enforced(cluster: Cluster) -> None:
    """limits.nvidia.com/gpumem of a ResourceQuota limits the grants of a namespace."""
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "small"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "4000"}},
    }
    await cluster.create(quota)
    await cluster.create(a_pod("first", gpu=1, gpumem=3000))
    await cluster.pod_in_phase("first", "Running")

    outcome = await _outcome(cluster, a_pod("second", gpu=1, gpumem=3000))

    assert "quota" in outcome.lower()


async def _outcome(cluster: Cluster, pod: Object) -> str:
    """Return why *pod* was not admitted, or the Events that say why it is pending."""
    try:
        await cluster.create(pod)
    except ApiError as error:
        return error.message

    async def explained() -> list[str]:
        return await reasons(cluster, pod["metadata"]["name"])

    return " ".join(await eventually(explained, "the Pod has an Event"))
