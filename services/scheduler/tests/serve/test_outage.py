"""
The scheduler during an outage of the API server, and how soon it recovers.
"""

import asyncio

import pytest

from hami_scheduler.errors import BindError
from hami_scheduler.main import Service
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.state.reservation import RESERVATION_SECONDS
from hamicommon.model import Object
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import run_virtually
from testbed.waiting import eventually

from ..support.builders import a_container, a_device, a_node, a_pod, promise_of
from ..support.virtual_time import a_scheduler

AWAY_SECONDS = 60.0
REVIEW = "deviceclasses"
"""What the leader asks every ten seconds, whatever happens."""
LEASE: Object = {"metadata": {"name": "hami", "namespace": "kube-system"}}


async def an_api() -> MemoryApi:
    """Return an API server with one Node of one device of 10000 MiB."""
    api = MemoryApi()
    await api.put("nodes", a_node("n1", a_device(memory_mib=10000, finds_owners=True)))
    return api


async def created(api: MemoryApi, name: str, memory_mib: int = 6000) -> Object:
    """Return a new Pod."""
    return await api.put("pods", a_pod(name, a_container(gpu=1, gpumem=memory_mib)))


async def named(service: Service, pod: Object) -> list[str]:
    """Return the Nodes a filter names."""
    return list((await filter_pod(service.context, pod, ["n1"], None)).node_names or ())


async def bind(service: Service, pod: Object) -> None:
    """Bind to n1."""
    metadata = pod["metadata"]
    await bind_pod(service.context, metadata["uid"], metadata["namespace"], metadata["name"], "n1")


def promised(service: Service) -> int:
    """Return the MiB promised of the device."""
    return int(promise_of(service.feed.cluster.ledger, "n1", "GPU-a").memory_mib)


def test_api_server_that_is_away_for_a_minute() -> None:
    """Few requests meanwhile; decisions go on from what is known; a bind in doubt ends as one Binding."""

    async def story() -> None:
        """A Pod is bound before, one during, and one ends unseen."""
        api = await an_api()
        async with a_scheduler(api) as service:
            before = await created(api, "before")
            await eventually(lambda: service.readiness.reflectors["pods"].age_seconds() < 1)
            assert ["n1"] == await named(service, before)
            await bind(service, before)
            await eventually(lambda: not len(service.feed.cluster.reservations))

            loop = asyncio.get_running_loop()
            await asyncio.sleep(30.0)
            began = loop.time()
            await api.set_away(is_away=True)
            during = a_pod("during", a_container(gpu=1, gpumem=4000))
            assert ["n1"] == await named(service, during)
            with pytest.raises(BindError):
                await bind(service, during)
            await asyncio.sleep(AWAY_SECONDS)
            calls = api.calls_since(began, but=REVIEW)
            assert len(calls) < 40, calls
            assert 10000 == promised(service)

            await api.remove("pods", "default/before")
            await api.put("pods", during)
            await api.set_away(is_away=False)
            back = loop.time()
            await eventually(lambda: promised(service) == 0, seconds=40.0)
            during = api.objects["pods"]["default/during"]
            assert ["n1"] == await named(service, during)
            await bind(service, during)
            await eventually(lambda: not len(service.feed.cluster.reservations))
            assert 1 == len(api.calls_since(back, "/binding"))
            assert (4000, 0) == (promised(service), service.feed.cluster.recount())

    run_virtually(story())


@pytest.mark.parametrize("fault", ["breaks_watches", "forgets"])
def test_watch_that_ends_at_every_event_loses_none(fault: str) -> None:
    """Broken or answered with 410 Gone: the ledger is the API server's, and nobody asks in a hurry."""

    async def story() -> None:
        """Pods come and go while no watch tells more than one event."""
        api = await an_api()
        async with a_scheduler(api) as service:
            setattr(api, fault, True)
            began = asyncio.get_running_loop().time()
            for number in range(20):
                share = f"GPU-a,NVIDIA,{100 + number},0:;"
                await api.put("pods", a_pod(f"p{number}", node="n1", allocated=share))
                await asyncio.sleep(1.0)
                if number % 2:
                    await api.remove("pods", f"default/p{number}")
            expected = sum(100 + number for number in range(0, 20, 2))
            await eventually(lambda: promised(service) == expected, seconds=120.0)
            setattr(api, fault, False)
            seconds = asyncio.get_running_loop().time() - began
            assert len(api.calls_since(began)) < 3 * seconds
            assert 0 == service.feed.cluster.recount()

    run_virtually(story())


def test_room_that_no_event_tells_of_is_used_within_a_second() -> None:
    """A reservation runs out; the waiting Pod is woken once, and not again though nobody asks."""

    async def story() -> None:
        """One Pod is chosen and never bound, another waits for its room."""
        api = await an_api()
        async with a_scheduler(api) as service:
            waiting = await created(api, "waiting")
            assert ["n1"] == await named(service, await created(api, "never-bound"))
            assert [] == await named(service, waiting)
            began = asyncio.get_running_loop().time()
            await asyncio.sleep(300.0)

            ((woken, _),) = api.calls_since(began, "patch")
            assert RESERVATION_SECONDS <= woken - began < RESERVATION_SECONDS + 1.0
            assert ["n1"] == await named(service, waiting)
            assert len(api.calls_since(began, but=REVIEW)) < 10

    run_virtually(story())


def test_quota_that_grows_is_used_within_a_second() -> None:
    """kube-scheduler does not watch ResourceQuotas."""

    async def story() -> None:
        """A Pod waits for its namespace's limit."""
        api = await an_api()
        quota = {"metadata": {"name": "q", "namespace": "default"}}
        await api.put("resourcequotas", {**quota, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}})
        async with a_scheduler(api) as service:
            waiting = await created(api, "waiting")
            assert [] == await named(service, waiting)
            await asyncio.sleep(30.0)
            began = asyncio.get_running_loop().time()
            await api.put("resourcequotas", {**quota, "spec": {"hard": {"limits.nvidia.com/gpumem": "6000"}}})
            await asyncio.sleep(30.0)

            ((woken, _),) = api.calls_since(began, "patch")
            assert woken - began < 1.0

    run_virtually(story())


def test_standby_takes_over_with_the_lease_and_nothing_is_granted_twice() -> None:
    """The old leader's choice dies with its term: its bind writes nothing, however late it comes."""

    async def story() -> None:
        """The Lease goes from here to there while a Pod is chosen here and not bound yet."""
        api = await an_api()
        loop = asyncio.get_running_loop()

        async def renew(holder: str) -> None:
            spec = {"holderIdentity": f"{holder}_1", "leaseDurationSeconds": 15, "renewTime": str(loop.time())}
            await api.put("leases", {**LEASE, "spec": spec})

        lease = {"must_lead": True, "lease_name": "hami", "lease_namespace": "kube-system"}
        await renew("here")
        async with (
            a_scheduler(api, hostname="here", **lease) as old,
            a_scheduler(api, hostname="there", **lease) as new,
        ):
            first, second = await created(api, "first"), await created(api, "second")
            assert ["n1"] == await named(old, first)
            lost = loop.time()
            await asyncio.sleep(15.0)  # here is frozen and renews no more
            await renew("there")
            await eventually(lambda: new.takeover.blocked_for(("NVIDIA",)) is None)
            second = api.objects["pods"]["default/second"]
            assert ["n1"] == await named(new, second)
            assert loop.time() - lost < 15.5
            await bind(new, second)
            with pytest.raises(BindError, match="does not hold the lease"):
                await bind(old, first)

            bindings = [what for _, what in api.calls if what.endswith("/binding")]
            assert ["create /api/v1/namespaces/default/pods/second/binding"] == bindings
            await eventually(lambda: promised(old) == promised(new) == 6000, seconds=120.0)

    run_virtually(story())
