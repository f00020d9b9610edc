"""
What a Pod that took the DRA path looks like: the claim that kube-scheduler makes, and what the extender sees of it.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from bench.load.simulation import COUNT
from dra.extender import Answers
from dra.objects import pod_of
from dra.stage import ALLOCATED, CLAIMS, Stage
from dra.table import OURS, Form, Kind
from hamicommon.model import Object
from harness.claims import API
from testbed.waiting import eventually

NIC = "nic.example.com"
RETRIED_SECONDS = 5.0
"""kube-scheduler retries after two seconds at most: `podMaxBackoffSeconds` of the chart."""

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(300)]


@pytest_asyncio.fixture(loop_scope="session")
async def mapped(stage: Stage) -> AsyncIterator[Stage]:
    """Yield the stage with our DeviceClass. Pods and claims of the test are gone afterwards."""
    await stage.replay("ours")
    yield stage
    stage.extender.accepting.bind = stage.bind
    await stage.clear()


async def bound(stage: Stage, name: str) -> Object:
    """Return the Pod *name* once it has a Node."""

    async def found() -> Object | None:
        pod = await stage.api.pod(name)
        return pod if pod["spec"].get("nodeName") else None

    pod: Object = await eventually(found, f"{name} is bound", 30)
    return pod


async def claims(stage: Stage) -> list[Object]:
    """Return the ResourceClaims of the namespace."""
    found: list[Object] = (await stage.api.list(CLAIMS.format(stage.api.namespace)))[0]
    return found


async def test_claim_is_the_pods_and_holds_one_token_for_each_device(mapped: Stage) -> None:
    """It has one request a container, in the Pod's status by name, and ends with the Pod."""
    pod = pod_of("p", Form.REWRITTEN, Kind.DRA.value)
    [main] = pod["spec"]["containers"]
    pod["spec"]["containers"] = [{**main, "resources": {"limits": {COUNT: "2"}}}, {**main, "name": "second"}]
    async with mapped.extender.answering(Answers.ANY):
        await mapped.api.create(mapped.api.pods, pod)
        pod = await bound(mapped, "p")
    [claim] = await claims(mapped)

    named = pod["status"]["extendedResourceClaimStatus"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "controller": True}
    user = {"resource": "pods", "name": "p", "uid": pod["metadata"]["uid"]}
    requests = {each["name"]: each["exactly"] for each in claim["spec"]["devices"]["requests"]}
    results = claim["status"]["allocation"]["devices"]["results"]
    assert claim["metadata"]["name"].startswith("p-extended-resources-")
    assert "true" == claim["metadata"]["annotations"]["resource.kubernetes.io/extended-resource-claim"]
    assert [owner] == claim["metadata"]["ownerReferences"]
    assert [user] == claim["status"]["reservedFor"]
    assert {
        "container-0-request-0": {"deviceClassName": OURS, "allocationMode": "ExactCount", "count": 2},
        "container-1-request-0": {"deviceClassName": OURS, "allocationMode": "ExactCount", "count": 1},
    } == requests
    assert {
        "resourceClaimName": claim["metadata"]["name"],
        "requestMappings": [
            {"containerName": "main", "resourceName": COUNT, "requestName": "container-0-request-0"},
            {"containerName": "second", "resourceName": COUNT, "requestName": "container-1-request-0"},
        ],
    } == named
    assert [*["container-0-request-0"] * 2, "container-1-request-0"] == [each["request"] for each in results]
    assert {(OURS, Kind.DRA.value)} == {(each["driver"], each["pool"]) for each in results}
    assert ["token-0-0", "token-0-1", "token-0-2"] == [each["device"] for each in results]


async def test_claim_is_allocated_before_the_extender_binds(mapped: Stage) -> None:
    """So the extender can read it, and kube-scheduler's filters have no claim yet."""
    seen: list[Object] = []

    async def bind(body: Object) -> None:
        pod = await mapped.api.pod(body["PodName"])
        name = pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        seen.append(await mapped.api.get(f"{CLAIMS.format(mapped.api.namespace)}/{name}"))
        await mapped.bind(body)

    accepting = mapped.extender.accepting
    accepting.calls.clear()
    accepting.bind = bind
    async with mapped.extender.answering(Answers.ANY):
        made = await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN, Kind.DRA.value))
        pod = await bound(mapped, "p")

    [claim] = seen
    [asked], [bind_call] = accepting.of("filter"), accepting.of("bind")
    who = {"PodName": "p", "PodNamespace": mapped.api.namespace, "PodUID": made["metadata"]["uid"]}
    assert {**who, "Node": Kind.DRA.value} == bind_call.body
    assert "extendedResourceClaimStatus" not in asked.body["Pod"]["status"]
    assert {COUNT: "1"} == asked.body["Pod"]["spec"]["containers"][0]["resources"]["limits"]
    assert ["token-0-0"] == [each["device"] for each in claim["status"]["allocation"]["devices"]["results"]]
    assert [made["metadata"]["uid"]] == [each["uid"] for each in claim["status"]["reservedFor"]]
    assert "GPU-0,NVIDIA,3000,10:;" == pod["metadata"]["annotations"][ALLOCATED]


async def test_pod_for_any_node_may_get_either_kind(mapped: Stage) -> None:
    """kube-scheduler names to the extender every Node that can provide the resource, whichever way."""
    accepting = mapped.extender.accepting
    accepting.calls.clear()
    async with mapped.extender.answering(Answers.ANY):
        await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN))
        await bound(mapped, "p")

    [asked] = accepting.of("filter")
    assert {Kind.PLUGIN.value, Kind.DRA.value, Kind.MOVED.value} == set(asked.body["NodeNames"])


async def test_claim_goes_and_its_name_stays_if_the_extender_cannot_bind(mapped: Stage) -> None:
    """
    A Pod that then gets a Node with a device plugin names a claim that does not exist, and its kubelet asks for it.

    Since 1.37 the API server keeps the name, whoever removes it.
    Sources: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/registry/core/pod/strategy.go#L248-L250,
    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/dra/manager.go#L266-L303
    """
    refused = asyncio.Event()
    accepting = mapped.extender.accepting

    async def bind(body: Object) -> None:
        if body["Node"] == Kind.DRA.value:
            refused.set()
            raise ConnectionError("the extender ends here")
        await mapped.bind(body)

    accepting.bind = bind
    accepting.answers["filter"] = {"NodeNames": [Kind.DRA.value]}
    try:
        async with mapped.extender.answering(Answers.ANY):
            await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN))
            await asyncio.wait_for(refused.wait(), 30)
            accepting.answers["filter"] = {"NodeNames": [Kind.PLUGIN.value]}
            pod = await bound(mapped, "p")
    finally:
        accepting.answers.clear()

    assert Kind.PLUGIN.value == pod["spec"]["nodeName"]
    assert [] == await claims(mapped)
    assert pod["status"]["extendedResourceClaimStatus"]["resourceClaimName"].startswith("p-extended-resources-")

    pod = await mapped.api.patch(f"{mapped.api.pods}/p/status", {"status": {"extendedResourceClaimStatus": None}})
    can_be_removed = mapped.minor == "1.36"
    assert can_be_removed == ("extendedResourceClaimStatus" not in pod["status"])


async def test_our_scheduler_grants_a_whole_device_if_amounts_are_in_an_annotation(mapped: Stage) -> None:
    """Today it reads amounts from resources only."""
    async with mapped.extender.answering(Answers.OURS):
        await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN, Kind.PLUGIN.value))
        pod = await bound(mapped, "p")

    [share] = pod["metadata"]["annotations"][ALLOCATED].split(":")[:1]
    assert ["NVIDIA", "81559", "0"] == share.split(",")[1:]


@pytest.mark.parametrize(
    ("kind", "outcome"), [(Kind.PLUGIN, "nil or empty request mappings"), (Kind.DRA, "")], ids=["plugin", "dra"]
)
async def test_pod_with_a_claim_of_another_driver_is_bound_to_a_dra_node_only(
    mapped: Stage, kind: Kind, outcome: str
) -> None:
    """
    Such as a claim for a network card. On a Node with a device plugin, kube-scheduler makes a claim without requests.

    Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go#L573-L575
    """
    slices, classes = f"{API}/resourceslices", f"{API}/deviceclasses"
    await mapped.api.create(slices, nic_slice(kind.value))
    await mapped.api.create(classes, {"metadata": {"name": NIC}, "spec": {}})
    try:
        await mapped.api.create(CLAIMS.format(mapped.api.namespace), nic_claim())
        pod = pod_of("p", Form.REWRITTEN, kind.value)
        pod["spec"]["resourceClaims"] = [{"name": "nic", "resourceClaimName": "nic"}]
        async with mapped.extender.answering(Answers.ANY):
            await mapped.api.create(mapped.api.pods, pod)
            if outcome:
                await eventually(lambda: is_told(mapped, outcome), outcome)
            else:
                assert kind.value == (await bound(mapped, "p"))["spec"]["nodeName"]
    finally:
        await mapped.api.delete(f"{slices}/{kind.value}-nics")
        await mapped.api.delete(f"{classes}/{NIC}")
        await mapped.api.request("DELETE", CLAIMS.format(mapped.api.namespace))


def nic_slice(node: str) -> Object:
    """Return a ResourceSlice of *node* with one device of another driver."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NIC, "nodeName": node, "pool": pool, "devices": [{"name": "nic-0"}]}
    return {"metadata": {"name": f"{node}-nics"}, "spec": spec}


def nic_claim() -> Object:
    """Return a ResourceClaim for a device of that driver."""
    wanted = {"deviceClassName": NIC, "selectors": [{"cel": {"expression": f'device.driver == "{NIC}"'}}]}
    return {"metadata": {"name": "nic"}, "spec": {"devices": {"requests": [{"name": "nic", "exactly": wanted}]}}}


@pytest.mark.parametrize(
    ("hard", "is_bound"),
    [
        ({f"requests.{COUNT}": "1"}, True),
        ({f"{OURS}.deviceclass.resource.k8s.io/devices": "0"}, False),
        ({"count/resourceclaims.resource.k8s.io": "0"}, False),
    ],
    ids=["count of the Pod", "devices of the class", "number of claims"],
)
async def test_quota(mapped: Stage, hard: dict[str, str], is_bound: bool) -> None:
    """A quota of the resource counts Pod and claim once. A quota of the class counts the claim, too, and stops it."""
    quotas = f"{mapped.api.place}/resourcequotas"
    await mapped.api.create(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    try:
        await eventually(lambda: counted(mapped), "the quota is counted")
        async with mapped.extender.answering(Answers.ANY):
            await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN, Kind.DRA.value))
            if is_bound:
                await bound(mapped, "p")
                quota = await mapped.api.get(f"{quotas}/q")
                assert dict.fromkeys(hard, "1") == quota["status"]["used"]
            else:
                await eventually(lambda: is_told(mapped, "exceeded quota"), "the Pod is over quota")
    finally:
        await mapped.api.delete(f"{quotas}/q")


async def test_second_claim_of_a_pod_is_over_a_quota_that_the_pod_fills(mapped: Stage) -> None:
    """
    After a failed bind the Pod names its first claim, so the API server does not know the second as the Pod's.

    Source: `getVerifiedPodUsage` in
    https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/quota/v1/evaluator/core/resource_claims.go
    """
    refusals = 0

    async def bind(body: Object) -> None:
        nonlocal refusals
        refusals += 1
        if refusals == 1:
            raise ConnectionError("the extender ends here")
        await mapped.bind(body)

    mapped.extender.accepting.bind = bind
    hard = {f"requests.{COUNT}": "1"}
    await mapped.api.create(f"{mapped.api.place}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    await eventually(lambda: counted(mapped), "the quota is counted")
    async with mapped.extender.answering(Answers.ANY):
        await mapped.api.create(mapped.api.pods, pod_of("p", Form.REWRITTEN, Kind.DRA.value))
        await eventually(lambda: is_told(mapped, "exceeded quota"), "the Pod is over quota", 30)
        await asyncio.sleep(RETRIED_SECONDS)
        assert await is_told(mapped, "exceeded quota")


async def counted(stage: Stage) -> bool:
    """Return whether the API server has counted the quota once."""
    quota = await stage.api.get(f"{stage.api.place}/resourcequotas/q")
    return bool(quota.get("status", {}).get("used"))


async def is_told(stage: Stage, text: str) -> bool:
    """Return whether a condition of the Pod says *text*, and it has no Node."""
    pod = await stage.api.pod("p")
    told = any(text in each.get("message", "") for each in pod["status"].get("conditions", ()))
    return told and "nodeName" not in pod["spec"]
