"""
Bindings with an unknown outcome never lead to a device being granted twice.
"""

import asyncio
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from hami_scheduler.bind.fences import find_outcomes
from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.errors import BindError
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.state.reservation import RESERVATION_SECONDS
from hamicommon.model import Object

from ..support.builders import NOW, a_cluster, a_container, a_device, a_node, a_pod, promises
from ..support.scripted_api import ScriptedApi

FULL = {"GPU-a": [1, 9000, 0]}


class Scene:
    """Two Nodes of one device each, a scheduler, and a hand on its clock, its API server and its leadership."""

    def __init__(self) -> None:
        self.now = 0.0
        self.blocked: str | None = None
        self.api = ScriptedApi()
        self.cluster = a_cluster(
            a_node("n1", a_device("GPU-a", memory_mib=9000, finds_owners=True)),
            a_node("n2", a_device("GPU-b", memory_mib=9000, finds_owners=True)),
        )
        api: Any = self.api
        locks = NodeLocks(api, lambda: NOW, timedelta(minutes=5))
        clock = Clock(lambda: NOW, lambda: self.now)
        self.context = Context(self.cluster, api, locks, clock, Settings(), lambda: self.blocked)

    def create(self, name: str) -> Object:
        """Return a new Pod that wants a device for itself."""
        pod = a_pod(name, a_container(gpu=1, gpumem=9000))
        self.api.put("pods", pod)
        return pod

    async def ask(self, pod: Object, *names: str) -> list[str]:
        """Return the Nodes that the filter names."""
        current = self.api.objects["pods"].get(f"default/{pod['metadata']['name']}", pod)
        return list((await filter_pod(self.context, current, names, None)).node_names or ())

    async def find_outcomes(self) -> None:
        """Do what the scheduler does at intervals."""
        await find_outcomes(self.cluster, self.context.api, self.context.marks)

    async def bind(self, pod: Object, node: str, *answers: str) -> str:
        """Bind while the API server gives *answers* to the Bindings, and return the error, empty for none."""
        metadata = pod["metadata"]
        names = (metadata["uid"], metadata["namespace"], metadata["name"])
        task = asyncio.create_task(bind_pod(self.context, *names, node))
        for answer in answers:
            while not self.api.writing and not task.done():  # noqa: ASYNC110 - it has no event of its own
                await asyncio.sleep(0)
            self.api.writing.pop().answer.set_result(answer)
        try:
            await task
        except BindError as error:
            return str(error)
        return ""


@pytest.fixture
def scene() -> Scene:
    """Nothing has happened yet."""
    return Scene()


async def test_binding_on_its_way_never_takes_effect_after_the_fence(scene: Scene) -> None:
    """Its room is another's at once, and the Binding fails when it arrives."""
    pod = scene.create("p")
    assert ["n1"] == await scene.ask(pod, "n1")
    assert "no answer" in await scene.bind(pod, "n1", "open", "open")

    assert {} == promises(scene.cluster, "n1")
    assert ["n1"] == await scene.ask(scene.create("other"), "n1")
    assert {"Precondition failed: ResourceVersion"} == {scene.api.apply(*late) for late in scene.api.on_their_way}


async def test_room_is_kept_while_no_fence_is_answered(scene: Scene) -> None:
    """However long that takes: the Binding may still arrive."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    scene.api.is_read_only = True
    await scene.bind(pod, "n1", "open")
    scene.now = 10 * RESERVATION_SECONDS
    scene.cluster.expire(scene.now)
    await scene.find_outcomes()

    assert FULL == promises(scene.cluster, "n1")
    assert [] == await scene.ask(pod, "n2")
    assert "may still take effect" in await scene.bind(pod, "n2")
    scene.api.is_read_only = False
    await scene.find_outcomes()
    assert {} == promises(scene.cluster, "n1")
    assert ["n2"] == await scene.ask(pod, "n2")


async def test_binding_that_arrived_before_the_fence_holds_its_room(scene: Scene) -> None:
    """The watch has not reported it, and a list that was begun before does not drop it."""
    pod = scene.create("p")
    before = scene.api.listed("pods")
    await scene.ask(pod, "n1")
    scene.api.is_read_only = True
    await scene.bind(pod, "n1", "open")
    assert "" == scene.api.apply(*scene.api.on_their_way[0])
    scene.api.is_read_only = False

    await scene.find_outcomes()
    scene.cluster.replace_pods(before, scene.now)

    assert FULL == promises(scene.cluster, "n1")
    scene.cluster.put_pod(scene.api.objects["pods"]["default/p"])
    assert (FULL, 0) == (promises(scene.cluster, "n1"), len(scene.cluster.reservations))


async def test_room_of_an_unanswered_binding_is_given_back_when_the_pod_is_gone(scene: Scene) -> None:
    """Its UID is a precondition of the Binding. The watch tells, or the read that settles it."""
    for tell in (scene.cluster.drop_pod, lambda _: None):
        pod = scene.create("p")
        await scene.ask(pod, "n1")
        scene.api.is_read_only = True
        await scene.bind(pod, "n1", "open")
        scene.api.is_read_only = False
        scene.api.remove("pods", pod)

        tell(pod)
        await scene.find_outcomes()

        assert {} == promises(scene.cluster, "n1")
        scene.cluster._deleted.clear()


async def test_nothing_is_held_for_a_pod_that_is_known_to_be_deleted(scene: Scene) -> None:
    """kube-scheduler may learn of the deletion later than we do, and never bind the Pod."""
    pod = scene.create("p")
    scene.cluster.drop_pod(pod)

    answer = await filter_pod(scene.context, pod, ["n1"], None)

    assert ("Pod default/p with uid uid-p is deleted", None) == (answer.error, answer.node_names)
    assert {} == promises(scene.cluster, "n1")
    assert ["n1"] == await scene.ask(scene.create("other"), "n1")


async def test_bound_pod_that_is_bound_again_keeps_its_room(scene: Scene) -> None:
    """kube-scheduler may have missed the first answer. The device failed; the watch has not reported the Pod."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    assert "" == await scene.bind(pod, "n1", "done")
    ill = a_device("GPU-a", memory_mib=9000, healthy=False, finds_owners=True)
    scene.cluster.put_node(a_node("n1", ill))

    assert "" == await scene.bind(pod, "n1")
    assert "already bound to node n1" in await scene.bind(pod, "n2")
    assert FULL == promises(scene.cluster, "n1")


async def test_refusal_after_a_fence_frees_the_room(scene: Scene) -> None:
    """The first Binding had no answer and the second was refused; the fence between them settles the first."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")

    assert "forbidden" in await scene.bind(pod, "n1", "open", "refused")
    assert {} == promises(scene.cluster, "n1")


async def test_deposed_scheduler_fences_nothing_and_frees_nothing(scene: Scene) -> None:
    """Its Binding is unanswered, and the next leader's fence is what settles it."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    version = pod["metadata"]["resourceVersion"]
    task = asyncio.create_task(scene.bind(pod, "n1"))
    while not scene.api.writing:  # noqa: ASYNC110 - it has no event of its own
        await asyncio.sleep(0)
    scene.blocked = "the Lease is another's"
    scene.api.writing.pop().answer.set_result("open")

    assert "the Lease is another's" in await task
    assert version == scene.api.objects["pods"]["default/p"]["metadata"]["resourceVersion"]
    assert FULL == promises(scene.cluster, "n1")


async def test_binding_is_sent_only_after_the_lease_was_read(scene: Scene) -> None:
    """A watch of the Lease may be late, so it alone never allows a Binding."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")

    async def confirm() -> str:
        return "the Lease is another's"

    scene.context.confirm = confirm
    assert "the Lease is another's" in await scene.bind(pod, "n1")
    assert [] == scene.api.writing
    assert {} == promises(scene.cluster, "n1")


async def test_pod_that_ended_before_its_bind_was_answered_holds_nothing(scene: Scene) -> None:
    """Its events have all been told: nothing that comes later would give the room back."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    await scene.bind(pod, "n1", "late")
    scene.api.objects["pods"]["default/p"]["status"]["phase"] = "Succeeded"
    scene.cluster.put_pod(scene.api.objects["pods"]["default/p"])
    assert ["n1"] == await scene.ask(pod, "n1")

    assert "" == await scene.bind(pod, "n1", "done")
    assert {} == promises(scene.cluster, "n1")
    assert 0 == len(scene.cluster.reservations)


async def test_scheduler_that_was_deposed_during_a_bind_writes_nothing(scene: Scene) -> None:
    """While it waited, for a node lock or frozen, another one began to decide."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")

    class SlowLocks:
        async def acquire(self, *_arguments: Any) -> None:
            """Take so long that the Lease is lost."""
            scene.blocked = "the Lease is another's"

        async def release(self, *_arguments: Any) -> None:
            """Give it back."""

        def binding(self, *_arguments: Any) -> Any:
            """Mark nothing."""
            return nullcontext()

        def contended(self) -> set[str]:
            """None."""
            return set()

    scene.context.locks = SlowLocks()  # type: ignore[assignment]
    scene.cluster.put_node(a_node("n1", a_device("GPU-a", memory_mib=9000)))

    assert "the Lease is another's" in await scene.bind(pod, "n1")
    assert 0 == scene.api.calls
    assert {} == promises(scene.cluster, "n1")
