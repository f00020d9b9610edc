"""
The scheduler samples many Nodes, finds the first one, and survives errors of its API server.
"""

from collections.abc import AsyncIterator

import pytest

from conformance.peers.extenders import Extender
from conformance.peers.objects import Api
from hamicommon.model import Object
from minicluster_tests.scheduler_peers import asking, configured, extender, scheduling
from testbed.waiting import eventually


@pytest.fixture
async def peer(api: Api) -> AsyncIterator[tuple[Extender, str]]:
    """Yield an extender that binds through the API, and its URL."""
    async with extender() as (peer, url):

        async def bind(body: Object) -> None:
            await api.bind(body["PodName"], body["Node"], uid=body["PodUID"])

        peer.bind = bind
        yield peer, url


async def bound(api: Api, name: str = "p") -> None:
    """Wait until a Pod has a Node."""

    async def is_bound() -> bool:
        return "nodeName" in (await api.pod(name))["spec"]

    await eventually(is_bound)


async def test_extender_gets_a_moving_sample_of_many_nodes(server: str, api: Api, peer: tuple[Extender, str]) -> None:
    """
    It is 48 percent of 240. The sample of the next Pod starts where the last one ended. 100 percent are all Nodes.
    """
    asked, url = peer
    for index in range(240):
        await api.create_node(f"n{index:03}")
    asked.room = False
    async with scheduling(server, configured(url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        assert 2 == await asked.asked(2)
    first, second = [call.body["NodeNames"] for call in asked.of("filter")]
    asked.calls.clear()
    async with scheduling(server, {**configured(url), "percentageOfNodesToScore": 100}):
        await asked.asked(1)

    assert (117, 117) == (len(first), len(second))
    assert not set(first) & set(second)
    assert 240 == len(asked.of("filter")[0].body["NodeNames"])


async def test_pod_is_retried_soon_after_the_first_node_is_created(server: str, api: Api) -> None:
    """
    The back-off finds the first Node of a cluster.
    """
    async with scheduling(server, configured()):
        await api.create_pod()

        async def says_why() -> bool:
            conditions = (await api.pod())["status"].get("conditions") or ()
            return ["no nodes available to schedule pods"] == [condition["message"] for condition in conditions]

        await eventually(says_why)
        await api.create_node()
        await bound(api)


async def test_api_outage_is_survived(server: str, api: Api, peer: tuple[Extender, str]) -> None:
    """
    Dropped watches and failing reports cost time, and never lose a Pod.
    """
    await api.create_node()
    async with scheduling(server, configured(peer[1])):
        await api.create("/minicluster/faults", {"path": "watch=true", "times": 4, "status": 500})
        await api.create(
            "/minicluster/faults", {"method": "POST", "path": "events", "times": 3, "disconnect": "before"}
        )
        await api.create("/minicluster/watches/drop", {"how": "abort"})
        for index in range(5):
            await api.create(api.pods, {"metadata": {"name": f"p{index}"}, "spec": asking()})
        for index in range(5):
            await bound(api, f"p{index}")
