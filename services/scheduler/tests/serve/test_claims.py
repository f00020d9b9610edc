"""A scheduler that follows ResourceClaims and ResourceSlices, over its sockets."""

from pathlib import Path

import pytest

from hamicommon.model import Object
from testbed.waiting import eventually

from ..state.test_claims import a_claim, a_claim_node, a_result, a_slice
from ..support.api_server import ApiServer
from ..support.builders import a_device, a_node, a_pod, promises
from ..support.service import running


def a_server(api: ApiServer, *claims: Object) -> ApiServer:
    """Let *api* have a Node of ResourceClaims, its slice and *claims*."""
    api.put("nodes", a_claim_node())
    api.put("resourceslices", a_slice())
    for claim in claims:
        api.put("resourceclaims", claim)
    return api


async def test_share_of_a_claim_is_in_the_metrics_until_the_claim_is_gone(api: ApiServer, tmp_path: Path) -> None:
    """Also after a start: it is listed before anything is decided."""
    a_server(api, a_claim("c", a_result()))
    async with running(api, tmp_path, has_dra=True) as scheduler:
        _, text = await scheduler.get(f"{scheduler.metrics_url}/metrics")
        labels = '{device_uuid="GPU-n1-0",holder="ResourceClaim default/c",node="n1"}'
        assert f"hami_scheduler_claim_memory_bytes{labels} 1.073741824e+09" in text
        assert f"hami_scheduler_claim_core_ratio{labels} 30.0" in text
        assert "hami_scheduler_unknown_claim_devices 0.0" in text

        api.put("resourceclaims", a_claim("d", a_result(1)))
        await eventually(lambda: "GPU-n1-1" in promises(scheduler.cluster, "n1"))
        api.remove("resourceclaims", "default/c")
        await eventually(lambda: {"GPU-n1-1": [1, 1024, 30]} == promises(scheduler.cluster, "n1"))


async def test_preemption_forgets_no_claim_on_its_node(api: ApiServer, tmp_path: Path) -> None:
    """It asks which Pods of the Node live, and a claim is none of them."""
    api.put("nodes", a_node("n1", a_device("GPU-n1-0")))
    api.put("resourceslices", a_slice())
    api.put("resourceclaims", a_claim("c", a_result()))
    async with running(api, tmp_path, has_dra=True) as scheduler:
        victims = {"n1": {"Pods": [], "NumPDBViolations": 0}}
        await scheduler.post("/preempt", {"Pod": a_pod("high"), "NodeNameToMetaVictims": victims})

        assert {"GPU-n1-0": [1, 1024, 30]} == promises(scheduler.cluster, "n1")


@pytest.mark.parametrize("has_dra", [True, False])
async def test_claims_are_followed_only_if_asked(api: ApiServer, tmp_path: Path, has_dra: bool) -> None:
    """Or a scheduler without rights on claims would never be ready."""
    a_server(api, a_claim("c", a_result()))
    async with running(api, tmp_path, has_dra=has_dra) as scheduler:
        followed = scheduler.service.feed.reflectors.keys()

        assert has_dra is ({"resourceclaims", "resourceslices"} <= followed)
        assert has_dra is bool(promises(scheduler.cluster, "n1"))
