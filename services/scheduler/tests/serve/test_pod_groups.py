"""
Pods that are bound together or not at all, as members of a PodGroup, on a Node that needs the lock.

A gang scheduler lets kube-scheduler ask about every member, holds all of them back in its Permit phase, and then binds
them at the same moment, or gives them all up. Each of them asks and binds here as kube-scheduler does it.
Source: https://github.com/kubernetes-sigs/scheduler-plugins/blob/v0.33.5/pkg/coscheduling/README.md
"""

import asyncio

import pytest

from hami_scheduler.errors import BindError
from hami_scheduler.state.reservation import RESERVATION_SECONDS
from testbed.virtual.loop import run_virtually
from testbed.waiting import eventually

from ..support.builders import a_pod
from ..support.pod_group import (
    SHARE_MIB,
    a_device_plugin,
    a_member,
    an_api,
    bind,
    bound_in_the_end,
    chosen,
    lock_owner,
    promised,
)
from ..support.virtual_time import a_scheduler

BINDING = "create /api/v1/namespaces/default/pods/"


@pytest.mark.parametrize(
    ("seconds", "is_refused"),
    [pytest.param(0.5, False, id="quick"), pytest.param(12.0, True, id="slower than we wait")],
)
def test_members_on_one_node_are_bound_one_after_the_other(seconds: float, is_refused: bool) -> None:
    """Each under the lock, each once; who waited in vain is asked about again and has its turn."""

    async def story() -> None:
        """Eight members are bound at the same moment."""
        api, gang = await an_api(8)
        names = [pod["metadata"]["name"] for pod in gang]
        async with a_scheduler(api) as service, a_device_plugin(api, seconds) as served:
            for pod in gang:
                assert await chosen(service, pod)
            assert 8 * SHARE_MIB == promised(service)

            refusals = await asyncio.gather(*(bound_in_the_end(service, pod) for pod in gang))
            await eventually(lambda: len(served) == 8, seconds=60.0)

            assert is_refused == (sum(refusals) > 0)
            assert names == sorted(served), "the lock named each of them once, when it was bound"
            assert 8 == len(api.calls_since(0.0, BINDING))
            assert "" == lock_owner(api)
            assert (8 * SHARE_MIB, 0) == (promised(service), service.feed.cluster.recount())
            await eventually(lambda: not len(service.feed.cluster.reservations))

    run_virtually(story())


def test_member_that_is_given_up_and_deleted_gives_its_room_back_at_once() -> None:
    """The controller of a gang that cannot run deletes its Pods; another gang has their room."""

    async def story() -> None:
        """Two of three members find room; all are deleted."""
        api, gang = await an_api(3, room=2)
        async with a_scheduler(api) as service:
            assert [True, True, False] == [await chosen(service, pod) for pod in gang]
            for pod in gang:
                await api.remove("pods", f"default/{pod['metadata']['name']}")
            await eventually(lambda: not promised(service), seconds=1.0)

            assert await chosen(service, await a_member(api, "other-0", "other"))
            assert await chosen(service, await a_member(api, "other-1", "other"))

    run_virtually(story())


def test_gang_that_waits_for_its_last_member_holds_no_room_for_ever() -> None:
    """Two gangs that hold half of the room each: asked about once more, neither holds more; not asked, none at all."""

    async def story() -> None:
        """One gang gives up for good, the other is tried again."""
        api, gang = await an_api(2)
        other = [await a_member(api, f"other-{number}", "other") for number in range(2)]
        async with a_scheduler(api) as service, a_device_plugin(api, 0.1):
            assert [True, True] == [await chosen(service, pod) for pod in (gang[0], other[0])]
            assert [False, False] == [await chosen(service, pod) for pod in (gang[1], other[1])]
            await asyncio.sleep(RESERVATION_SECONDS / 2)
            assert await chosen(service, other[0])
            assert 2 * SHARE_MIB == promised(service)

            await asyncio.sleep(RESERVATION_SECONDS / 2 + 1.0)
            assert SHARE_MIB == promised(service), "that of the member asked about again"
            assert await chosen(service, other[1])
            assert [0, 0] == await asyncio.gather(*(bound_in_the_end(service, pod) for pod in other))
            assert [False, False] == [await chosen(service, pod) for pod in gang]
            assert 2 == len(api.calls_since(0.0, BINDING))

    run_virtually(story())


@pytest.mark.parametrize("is_taken", [False, True], ids=["room left", "room taken"])
def test_member_held_back_longer_than_its_room_is_decided_again(is_taken: bool) -> None:
    """Its bind finds devices on the Node as they are then, or is refused before anything is written."""

    async def story() -> None:
        """A gang is complete only after its first member's choice has expired."""
        api, gang = await an_api(2)
        async with a_scheduler(api) as service, a_device_plugin(api, 0.1):
            assert await chosen(service, gang[0])
            await asyncio.sleep(RESERVATION_SECONDS + 1.0)
            assert await chosen(service, gang[1])
            if is_taken:
                share = f"GPU-a,NVIDIA,{SHARE_MIB},0:;"
                await api.put("pods", a_pod("faster", node="n1", allocated=share))
                await eventually(lambda: promised(service) == 2 * SHARE_MIB)

            await bind(service, gang[1])
            if is_taken:
                with pytest.raises(BindError, match="CardInsufficientMemory"):
                    await bind(service, gang[0])
            else:
                await bind(service, gang[0])
            assert (1 if is_taken else 2) == len(api.calls_since(0.0, BINDING))
            assert 2 * SHARE_MIB == promised(service)
            await eventually(lambda: lock_owner(api) == "", seconds=5.0)

    run_virtually(story())
