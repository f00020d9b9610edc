"""
What is reserved for a PodGroup that kube-scheduler gives up, in virtual time.

kube-scheduler asks about the members one after the other, and stops at one that shows that too few fit. Then it binds
those that have a Node, or gives all up and says nothing.
Source: kubernetes 1.37.2, pkg/scheduler/schedule_one_podgroup.go
"""

import asyncio
from typing import Any

from hami_scheduler.main import Service
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.serve.gangs import CERTAIN_SECONDS, HELD_SECONDS, RETRY_SECONDS
from hamicommon.model import Object
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import run_virtually

from ..support.builders import a_container, a_device, a_node, a_pod
from ..support.pod_group import POD_GROUP, SHARE_MIB, bind, chosen, promised
from ..support.virtual_time import a_scheduler

SOON_SECONDS = 0.6
"""Reservations expire and Pods are woken at such intervals."""


async def an_api(room: int) -> MemoryApi:
    """Return an API server with one Node that has room for *room* shares, without a lock."""
    api = MemoryApi()
    device = a_device(count=100, memory_mib=SHARE_MIB * room, finds_owners=True)
    await api.put("nodes", a_node("n1", device))
    return api


async def a_gang(api: MemoryApi, name: str, pods: int) -> list[Object]:
    """Return the new Pods of the PodGroup *name*."""
    return [await a_member(api, f"{name}-{number}", name) for number in range(pods)]


async def a_member(api: MemoryApi, name: str, group: str) -> Object:
    """Return a new Pod of the PodGroup *group*, empty for none."""
    pod = a_pod(name, a_container(gpu=1, gpumem=SHARE_MIB))
    pod["spec"] |= {"schedulingGroup": {"podGroupName": group}} if group else {}
    return await api.put("pods", pod)


async def placed(service: Service, gang: list[Object], least: int | None = None) -> int:
    """Ask as kube-scheduler does, until all are asked or fewer than *least* can fit; return how many got a Node."""
    found = 0
    for number, pod in enumerate(gang, 1):
        found += await chosen(service, pod)
        if found + len(gang) - number < (len(gang) if least is None else least):
            break
    return found


def woken(api: MemoryApi) -> list[str]:
    """Return the Pods that were woken, in this order."""
    return [what.rpartition("/")[2] for _, what in api.calls_since(0.0, "patch /api/v1/namespaces/default/pods/")]


def test_gang_that_does_not_fit_holds_its_half_for_a_second() -> None:
    """Another Pod fits as soon as the second is over, and is woken for it."""

    async def story() -> None:
        """Two of three members find room."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            gang, lone = await a_gang(api, "large", 3), await a_member(api, "lone", "")
            assert 2 == await placed(service, gang)
            assert not await chosen(service, lone)

            await asyncio.sleep(HELD_SECONDS + SOON_SECONDS)
            assert 0 == promised(service)
            assert "lone" in woken(api)
            assert await chosen(service, lone)

    run_virtually(story())


def test_gang_that_does_not_fit_starves_nobody_however_often_it_is_asked_about() -> None:
    """Asked about every 100 ms before another gang, it takes nothing from it after the first attempt."""

    async def story() -> None:
        """The events of a busy cluster wake both gangs, the one that cannot fit first."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            large, small = await a_gang(api, "large", 3), await a_gang(api, "small", 2)
            assert 2 == await placed(service, large)
            assert 0 == await placed(service, small)

            for _ in range(20):
                await asyncio.sleep(0.1)
                assert 0 == await placed(service, large)
                if await placed(service, small) == 2:
                    break
            else:
                raise AssertionError("the small gang never got its room")
            for pod in small:
                await bind(service, pod)
            assert 2 * SHARE_MIB == promised(service)

    run_virtually(story())


def test_two_gangs_that_do_not_fit_wake_nobody_in_a_quiet_cluster() -> None:
    """Neither is woken by what the other gives back, except once that it is tried at all."""

    async def story() -> None:
        """Nothing else happens for ten minutes."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            one, other = await a_gang(api, "one", 3), await a_gang(api, "other", 3)
            assert [2, 0] == [await placed(service, gang) for gang in (one, other)]
            await asyncio.sleep(HELD_SECONDS + SOON_SECONDS + RETRY_SECONDS)
            assert ["other-0"] == woken(api)
            assert 2 == await placed(service, other)

            await asyncio.sleep(CERTAIN_SECONDS - RETRY_SECONDS - 2.0)
            assert ["other-0"] == woken(api)
            assert 0 == promised(service)

    run_virtually(story())


def test_gang_gets_room_that_appears_at_once() -> None:
    """As soon as more of its members fit than before, all are asked and bound."""

    async def story() -> None:
        """A Pod that holds the last share ends."""
        api = await an_api(3)
        async with a_scheduler(api) as service:
            await api.put("pods", a_pod("resident", node="n1", allocated=f"GPU-a,NVIDIA,{SHARE_MIB},0:;"))
            await asyncio.sleep(0.1)
            gang = await a_gang(api, "ranks", 3)
            assert [2, 0] == [await placed(service, gang), await placed(service, gang)]

            await api.remove("pods", "default/resident")
            await asyncio.sleep(0.1)
            assert 3 == await placed(service, gang)
            for pod in gang:
                await bind(service, pod)
            assert 3 * SHARE_MIB == promised(service)

    run_virtually(story())


def test_gang_is_woken_for_room_that_kube_scheduler_overlooks() -> None:
    """A member is woken once the whole gang fits, and not before."""

    async def story() -> None:
        """Two Pods end one after the other, and kube-scheduler does not ask."""
        api = await an_api(3)
        async with a_scheduler(api) as service:
            for name in ("a", "b"):
                await api.put("pods", a_pod(name, node="n1", allocated=f"GPU-a,NVIDIA,{SHARE_MIB},0:;"))
            await asyncio.sleep(0.1)
            gang = await a_gang(api, "ranks", 3)
            assert 1 == await placed(service, gang)
            await asyncio.sleep(HELD_SECONDS + RETRY_SECONDS)
            assert [] == woken(api)

            await api.remove("pods", "default/a")
            await asyncio.sleep(RETRY_SECONDS + SOON_SECONDS)
            assert 1 == len(woken(api))

    run_virtually(story())


def test_members_that_are_bound_late_keep_their_room() -> None:
    """Once kube-scheduler binds one member, the others are reserved as long as any Pod."""

    async def story() -> None:
        """One member needs no more than two of three, and the second one's volume takes 30 s."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            gang = await a_gang(api, "elastic", 3)
            assert 2 == await placed(service, gang, least=2)
            await bind(service, gang[0])
            await asyncio.sleep(30.0)
            assert 2 * SHARE_MIB == promised(service)
            await bind(service, gang[1])

    run_virtually(story())


def test_gang_that_fails_elsewhere_is_tried_again_after_seconds() -> None:
    """If every member got a Node and none is bound, nothing is reserved again for five seconds."""

    async def story() -> None:
        """A member without devices lacks CPU."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            gang = await a_gang(api, "ranks", 2)
            assert [2, 0] == [await placed(service, gang), await placed(service, gang)]
            assert 0 == promised(service)
            await asyncio.sleep(RETRY_SECONDS + SOON_SECONDS)
            assert 1 == len(woken(api))
            assert 2 == await placed(service, gang)

    run_virtually(story())


def test_gang_that_needs_fewer_members_now_is_tried_within_a_minute() -> None:
    """`minCount` of a PodGroup may be lowered, which nobody tells the extender."""

    async def story() -> None:
        """Two of three fit all the time."""
        api = await an_api(2)
        async with a_scheduler(api) as service:
            gang = await a_gang(api, "ranks", 3)
            assert [2, 0] == [await placed(service, gang), await placed(service, gang, least=2)]
            await asyncio.sleep(CERTAIN_SECONDS)
            assert 2 == await placed(service, gang, least=2)
            for pod in gang[:2]:
                await bind(service, pod)

    run_virtually(story())


def test_member_is_reserved_even_if_kube_scheduler_ranks_the_nodes() -> None:
    """With `--prioritize` a filter reserves nothing, so members of a gang would not count each other."""

    async def story() -> None:
        """Three members, and room for two."""
        api = await an_api(2)
        async with a_scheduler(api, prioritizes=True) as service:
            assert 2 == await placed(service, await a_gang(api, "ranks", 3))
            coscheduled = await a_member(api, "coscheduled", "")
            coscheduled["metadata"]["labels"] = {POD_GROUP: "other"}
            assert not await chosen(service, await api.put("pods", coscheduled))

    run_virtually(story())


def test_order_of_the_members_does_not_matter() -> None:
    """kube-scheduler may begin its next attempt with the member that was refused last."""

    async def story() -> None:
        """Room for the third member appears meanwhile."""
        api = await an_api(3)
        async with a_scheduler(api) as service:
            await api.put("pods", a_pod("resident", node="n1", allocated=f"GPU-a,NVIDIA,{SHARE_MIB},0:;"))
            await asyncio.sleep(0.1)
            gang = await a_gang(api, "ranks", 3)
            assert 2 == await placed(service, gang)
            await api.remove("pods", "default/resident")
            await asyncio.sleep(0.1)
            assert 3 == await placed(service, gang[::-1])

    run_virtually(story())


def test_refusal_on_the_nominated_node_alone_is_none_of_the_gang() -> None:
    """After a preemption kube-scheduler asks about that Node first, and then about all, in the same attempt."""

    async def story() -> None:
        """The second member's nominated Node is full, and the other Node has room."""
        api = await an_api(1)
        await api.put("nodes", a_node("n2", a_device("GPU-b", count=100, memory_mib=SHARE_MIB, finds_owners=True)))
        async with a_scheduler(api) as service:
            gang = await a_gang(api, "ranks", 2)
            assert await chosen(service, gang[0])
            gang[1]["status"]["nominatedNodeName"] = "n1"
            for nodes, fits in ((["n1"], False), (["n1", "n2"], True)):
                answer = await filter_pod(service.context, gang[1], nodes, None)
                assert fits == bool(answer.node_names)
            assert {"uid-ranks-0", "uid-ranks-1"} == {one.grant.uid for one in service.feed.cluster.reservations.all()}

    run_virtually(story())


def test_gangs_of_two_namespaces_are_two() -> None:
    """A tenant's PodGroup has no influence on that of another tenant with the same name."""

    async def story() -> None:
        """Both are called `ranks`; that of the other namespace fits."""
        api = await an_api(4)
        async with a_scheduler(api) as service:
            gang = await a_gang(api, "ranks", 5)
            assert 4 == await placed(service, gang)
            assert 0 == await placed(service, gang)
            others: list[Any] = [a_pod(f"o{n}", a_container(gpu=1, gpumem=SHARE_MIB), namespace="b") for n in range(2)]
            for pod in others:
                pod["spec"]["schedulingGroup"] = {"podGroupName": "ranks"}
            assert 2 == await placed(service, others)

    run_virtually(story())
