"""
An API server that keeps answering 409: few tries, with growing pauses, and nothing granted twice.

Somebody else changes the same objects all the time: controllers write Nodes every few seconds, and a Binding meets a
Pod that has changed. kube-scheduler asks again after every refusal, as it does here.
"""

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from hami_scheduler.errors import BindError
from hamicommon.wire import keys
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import run_virtually
from testbed.waiting import eventually

from ..support.builders import a_device, a_node
from ..support.pod_group import (
    SHARE_MIB,
    a_device_plugin,
    a_member,
    an_api,
    bind,
    bound_in_the_end,
    chosen,
    is_bound,
    promised,
)
from ..support.virtual_time import a_scheduler

LOCKING = "patch /api/v1/nodes/n1"
BINDING = "create /api/v1/namespaces/default/pods"
READING = "get /api/v1/namespaces/default/pods/m0"
LOCKS_REFUSED, BINDINGS_REFUSED = 100, 10
TRIES = 8
"""Writes of one lock for one bind, when every one of them meets a Node that has changed."""


def pauses(api: MemoryApi, what: str) -> Sequence[float]:
    """Return the seconds between the requests *what*."""
    times = [when for when, _ in api.calls_since(0.0, what)]
    return [later - earlier for earlier, later in itertools.pairwise(times)]


def test_lock_is_taken_when_the_node_holds_still() -> None:
    """Each try waits about twice as long as the one before it; the bind itself goes on."""

    async def story() -> None:
        """All tries but the last fail."""
        api, [pod] = await an_api(1)
        async with a_scheduler(api) as service:
            assert await chosen(service, pod)
            api.conflicts[LOCKING] = TRIES - 1
            await bind(service, pod)

            found = pauses(api, LOCKING)
            assert TRIES - 1 == len(found)
            assert all(0.005 * 2**place <= pause <= 0.01 * 2**place for place, pause in enumerate(found)), found
            assert 1 == len(api.calls_since(0.0, BINDING))

    run_virtually(story())


def test_node_that_never_holds_still_costs_few_tries_and_holds_no_room() -> None:
    """The bind is refused and its room is another's, who is bound when the storm is over."""

    async def story() -> None:
        """One more conflict than there are tries, and another Pod that wants the same room."""
        api, [pod] = await an_api(1)
        other = await a_member(api, "other")
        async with a_scheduler(api) as service:
            assert await chosen(service, pod)
            api.conflicts[LOCKING] = TRIES
            with pytest.raises(BindError, match="has been modified"):
                await bind(service, pod)
            assert (TRIES, 0) == (len(api.calls_since(0.0, LOCKING)), promised(service))

            assert await chosen(service, other)
            assert not await chosen(service, pod)
            await bind(service, other)
            assert (False, True) == (is_bound(api, "m0"), is_bound(api, "other"))

    run_virtually(story())


def test_binding_refused_as_a_conflict_is_looked_up_once_and_not_repeated() -> None:
    """Whether to try again, and where, is kube-scheduler's to say; in the end the Pod is bound, with one share."""

    async def story() -> None:
        """Six Bindings are refused though the Pod has no Node."""
        api = MemoryApi()
        await api.put("nodes", a_node("n1", a_device(memory_mib=SHARE_MIB, finds_owners=True)))
        pod = await a_member(api, "m0")
        async with a_scheduler(api) as service:
            assert await chosen(service, pod)
            api.conflicts[BINDING] = 6

            assert 6 == await bound_in_the_end(service, pod)

            assert (7, 6) == (len(api.calls_since(0.0, BINDING)), len(api.calls_since(0.0, READING)))
            await eventually(lambda: not len(service.feed.cluster.reservations))
            assert (SHARE_MIB, 0) == (promised(service), service.feed.cluster.recount())

    run_virtually(story())


def test_gang_in_a_storm_is_bound_in_the_end() -> None:
    """
    Locks and Bindings conflict all along: each member gets one share. A refusal costs one write, and a bind that takes
    the lock one to take it, one at most to give it back, and the device plugin's.
    """

    async def story() -> None:
        """Six members on one Node, and a hundred conflicts."""
        api, gang = await an_api(6)
        async with a_scheduler(api) as service, a_device_plugin(api, 0.2):
            for pod in gang:
                assert await chosen(service, pod)
            api.conflicts |= {LOCKING: LOCKS_REFUSED, BINDING: BINDINGS_REFUSED}
            began = asyncio.get_running_loop().time()

            await asyncio.gather(*(bound_in_the_end(service, pod) for pod in gang))

            assert all(is_bound(api, pod["metadata"]["name"]) for pod in gang)
            tries = 6 + BINDINGS_REFUSED
            assert len(api.calls_since(began, BINDING)) <= tries
            assert len(api.calls_since(began, LOCKING)) <= LOCKS_REFUSED + 3 * tries
            await eventually(lambda: keys.NODE_LOCK not in api.objects["nodes"]["n1"]["metadata"]["annotations"])
            await eventually(lambda: not len(service.feed.cluster.reservations))
            assert (6 * SHARE_MIB, 0) == (promised(service), service.feed.cluster.recount())

    run_virtually(story())
