"""
A Pod that fits nowhere says why, keeps nobody busy, and starts when room appears.
"""

import asyncio

from harness.cluster import Cluster, eventually
from harness.manifests import a_pod
from minicluster.client import ApiError, Object

A100 = {"nvidia.com/use-gputype": "A100"}


async def reasons(cluster: Cluster, pod: str) -> list[str]:
    """Return the messages of the Pod's FilteringFailed Events."""
    return [event["message"] for event in await cluster.events(pod) if event["reason"] == "FilteringFailed"]


async def test_refused_pod_has_an_event_with_a_stable_code(cluster: Cluster) -> None:
    """HAMi's code is in the Event, so that its users' runbooks keep working."""
    await cluster.create(a_pod("huge", gpu=1, gpumem=999_000))

    async def explained() -> list[str]:
        return await reasons(cluster, "huge")

    messages = await eventually(explained, "huge is explained", 5)

    assert "CardInsufficientMemory" in " ".join(messages)
    assert "Pending" == (await cluster.pod("huge"))["status"]["phase"]


async def test_waiting_pod_starts_when_another_ends(cluster: Cluster) -> None:
    """Room that appears is offered at once, without a timer."""
    await cluster.create(a_pod("resident", annotations=A100, gpu=2, gpumem=30000, gpucores=10))
    await cluster.pod_in_phase("resident", "Running")
    await cluster.create(a_pod("large", annotations=A100, gpu=1, gpumem=20000))

    async def waits() -> bool:
        return bool(await reasons(cluster, "large"))

    await eventually(waits, "large waits", 5)
    await cluster.delete_pod("resident")

    await cluster.pod_in_phase("large", "Running", timeout_seconds=5)


async def test_refusal_does_not_ask_itself_again_for_ever(cluster: Cluster) -> None:
    """FailedNodes carries codes only: a text that changes is written into the Pod, which wakes it without end."""
    await cluster.create(a_pod("huge", gpu=1, gpumem=999_000))

    async def refused() -> bool:
        return bool(await reasons(cluster, "huge"))

    async def version() -> str:
        return str((await cluster.pod("huge"))["metadata"]["resourceVersion"])

    await eventually(refused, "huge is refused", 5)
    await asyncio.sleep(1)
    before = await version()
    await asyncio.sleep(4)

    assert before == await version()


async def test_quota_of_memory_is_held(cluster: Cluster) -> None:
    """limits.nvidia.com/gpumem of a ResourceQuota bounds what a namespace is granted."""
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
    """Return why *pod* was not admitted, or what its Events say of why it waits."""
    try:
        await cluster.create(pod)
    except ApiError as error:
        return error.message

    async def explained() -> list[str]:
        return await reasons(cluster, pod["metadata"]["name"])

    return " ".join(await eventually(explained, "the Pod is explained", 5))
