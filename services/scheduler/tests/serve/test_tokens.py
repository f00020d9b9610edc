"""
`/bind` to a Node that gives tokens: only with the claim that kube-scheduler has made by then.
"""

from pathlib import Path
from typing import Any

import pytest

from hami_scheduler.serve.background import periodic
from hamicommon.dra.names import DRIVER, TOKEN_CLASS
from hamicommon.dra.tokens import encode_tokens
from hamicommon.model import Object
from testbed.waiting import eventually

from ..state.test_claims import a_slice
from ..support.api_server import ApiServer
from ..support.builders import a_device, a_node, a_pod, promises
from ..support.service import Running, running

CLAIM = "p-extended-resources-x"


def a_claim(*tokens: str, pool: str = "n1", pod: str = "uid-p") -> Object:
    """Return the claim that kube-scheduler makes, with these tokens."""
    results = [{"request": "container-0-request-0", "driver": DRIVER, "pool": pool, "device": name} for name in tokens]
    status = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": "p", "uid": pod}],
    }
    return {"metadata": {"namespace": "default", "name": CLAIM, "uid": "claim-uid"}, "status": status}


def a_server(api: ApiServer) -> None:
    """Let *api* have a Node of kind `dra` with ten tokens for its device, and the DeviceClass of tokens."""
    map_count(api, TOKEN_CLASS)
    api.put("nodes", a_node("n1", a_device("GPU-n1"), replicas=0, hami_io__node_kind="dra"))
    item = a_slice("n1", devices=0)
    item["spec"]["devices"] = [token for part in encode_tokens(10) for token in part["devices"]]
    api.put("resourceslices", item)


def map_count(api: ApiServer, device_class: str) -> None:
    """Let a DeviceClass of *api* map the count of NVIDIA devices."""
    api.put("deviceclasses", {"metadata": {"name": device_class}, "spec": {"extendedResourceName": "nvidia.com/gpu"}})


async def knows_the_class(scheduler: Running) -> None:
    """Wait until the scheduler knows the DeviceClass; it has been started a moment ago."""
    await eventually(lambda: scheduler.cluster.view.inventory("n1").is_mapped, "the DeviceClass is known")


async def filtered(scheduler: Running, api: ApiServer) -> Object:
    """Let a Pod be placed on the Node, and return it as kube-scheduler leaves it then, with the name of its claim."""
    await knows_the_class(scheduler)
    pod = api.put("pods", a_pod())
    assert ["n1"] == (await scheduler.post("/filter", {"Pod": pod, "NodeNames": ["n1"]}))["NodeNames"]
    return api.put(
        "pods", {**pod, "status": {**pod["status"], "extendedResourceClaimStatus": {"resourceClaimName": CLAIM}}}
    )


async def test_pod_with_its_claim_is_bound_with_its_grant(api: ApiServer, tmp_path: Path) -> None:
    """In one Binding, although kube-scheduler has changed the Pod since the filter."""
    a_server(api)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        pod = await filtered(scheduler, api)
        api.put("resourceclaims", a_claim("hami-token-0"))

        assert "" == await scheduler.bind(pod, "n1")

        assert "GPU-n1,NVIDIA,1000,0:;" == api.pod("p")["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        assert 1 == len([path for _, path, _ in api.writes if path.endswith("/binding")])
        assert {"GPU-n1": [1, 1000, 0]} == promises(scheduler.cluster, "n1"), "the claim counts beside the Pod"


CLAIMS: dict[str, tuple[Any, str]] = {
    "gone": (None, "does not exist"),
    "of another Pod": (a_claim("hami-token-0", pod="other"), "is not reserved for it"),
    "of another Node": (a_claim("hami-token-0", pool="n2"), "has no tokens of node n1"),
    "of devices": (a_claim("hami-gpu-0"), "has no tokens of node n1"),
    "not allocated": (a_claim(), "has no tokens of node n1"),
}


@pytest.mark.parametrize("case", CLAIMS)
async def test_pod_without_tokens_is_not_bound(api: ApiServer, tmp_path: Path, case: str) -> None:
    """It would start without a device. What was reserved for it is free again."""
    claim, problem = CLAIMS[case]
    a_server(api)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        pod = await filtered(scheduler, api)
        if claim is not None:
            api.put("resourceclaims", claim)

        assert problem in await scheduler.bind(pod, "n1")

        assert [] == [path for _, path, _ in api.writes if path.endswith("/binding")]
        assert {} == promises(scheduler.cluster, "n1") or case == "of devices"


async def test_pod_of_a_kube_scheduler_that_makes_no_claims_is_not_bound(api: ApiServer, tmp_path: Path) -> None:
    """It has forgotten the DeviceClass, or the gate is off."""
    a_server(api)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        pod = await filtered(scheduler, api)
        api.put("pods", {**pod, "status": {"phase": "Pending"}})

        assert "it knows no DeviceClass" in await scheduler.bind(pod, "n1")


@pytest.mark.parametrize("device_class", [TOKEN_CLASS, "a-class-of-others"])
async def test_pod_on_a_node_with_a_device_plugin_is_bound_in_one_binding(
    api: ApiServer, tmp_path: Path, device_class: str
) -> None:
    """kube-scheduler has written its status since the filter, because a DeviceClass maps what the Pod asks for."""
    api.put("nodes", a_node("n1", a_device("GPU-n1")))
    map_count(api, device_class)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        await knows_the_class(scheduler)
        pod = api.put("pods", a_pod())
        assert ["n1"] == (await scheduler.post("/filter", {"Pod": pod, "NodeNames": ["n1"]}))["NodeNames"]
        api.put("pods", {**pod, "status": {**pod["status"], "nominatedNodeName": "n1"}})

        assert "" == await scheduler.bind(pod, "n1")

        assert 1 == len([path for _, path, _ in api.writes if path.endswith("/binding")])
        assert {"GPU-n1": [1, 1000, 0]} == promises(scheduler.cluster, "n1")


@pytest.mark.parametrize("weights", ["core=1", "what", '{"core": 1e999}'])
async def test_pod_that_was_changed_since_the_filter_is_not_bound(api: ApiServer, tmp_path: Path, weights: str) -> None:
    """Its author may write what nobody can read. What was reserved for it is free again."""
    api.put("nodes", a_node("n1", a_device("GPU-n1")))
    map_count(api, TOKEN_CLASS)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        await knows_the_class(scheduler)
        pod = api.put("pods", a_pod())
        assert ["n1"] == (await scheduler.post("/filter", {"Pod": pod, "NodeNames": ["n1"]}))["NodeNames"]
        annotations = {"hami.io/device-scoring-weights": weights}
        api.put("pods", {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

        assert "was changed after its devices were chosen" in await scheduler.bind(pod, "n1")

        assert {} == promises(scheduler.cluster, "n1")


async def test_scheduler_that_starts_knows_the_device_class_at_once(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Pod for a Node with tokens does not wait until the next look."""
    monkeypatch.setattr(periodic, "REVIEW_SECONDS", 1e6)
    a_server(api)
    async with running(api, tmp_path, has_dra=True) as scheduler:
        await filtered(scheduler, api)
