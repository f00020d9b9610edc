"""
Bindings with an unknown outcome never lead to a device being granted twice.
"""

import asyncio
from typing import Any

import pytest

from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.errors import BindError
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.state.reservation import RESERVATION_SECONDS

from ..support.builders import NOW, Object, a_cluster, a_container, a_device, a_node, a_pod, promises
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
        locks: Any = None
        clock = Clock(lambda: NOW, lambda: self.now)
        self.context = Context(self.cluster, api, locks, clock, Settings(), lambda: self.blocked)

    def create(self, name: str) -> Object:
        """Return a new Pod that wants a device for itself."""
        pod = a_pod(name, a_container(gpu=1, gpumem=9000))
        self.api.put("pods", pod)
        return pod

    async def ask(self, pod: Object, *names: str) -> list[str]:
        """Return the Nodes that the filter names."""
        return list((await filter_pod(self.context, pod, names, None)).node_names or ())

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


async def test_room_of_a_binding_that_may_still_arrive_is_kept(scene: Scene) -> None:
    """The Pod got another Node; the first one is kept for a minute, because the Binding may still arrive."""
    pod = scene.create("p")
    assert ["n1"] == await scene.ask(pod, "n1")
    assert "no answer" in await scene.bind(pod, "n1", "open", "open")
    assert ["n2"] == await scene.ask(pod, "n2")

    assert FULL == promises(scene.cluster, "n1")
    assert [] == await scene.ask(scene.create("other"), "n1", "n2")
    scene.now = RESERVATION_SECONDS
    assert ["n1"] == await scene.ask(scene.create("third"), "n1")


async def test_room_kept_for_a_late_binding_is_given_back_when_the_pod_is_seen(scene: Scene) -> None:
    """Bound once, it cannot be bound again."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    await scene.bind(pod, "n1", "open", "open")
    await scene.ask(pod, "n2")
    assert "" == await scene.bind(pod, "n2", "done")

    scene.cluster.put_pod(scene.api.objects["pods"]["default/p"])

    assert ({}, {"GPU-b": [1, 9000, 0]}) == (promises(scene.cluster, "n1"), promises(scene.cluster, "n2"))
    assert 0 == len(scene.cluster.reservations)


async def test_room_kept_for_a_late_binding_is_given_back_when_the_pod_is_gone(scene: Scene) -> None:
    """Its UID is a precondition of the Binding."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")
    await scene.bind(pod, "n1", "open", "open")
    await scene.ask(pod, "n2")

    scene.cluster.drop_pod(pod)

    assert ({}, {}) == (promises(scene.cluster, "n1"), promises(scene.cluster, "n2"))


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


async def test_refusal_after_a_binding_without_an_answer_frees_nothing(scene: Scene) -> None:
    """Only the second one was refused."""
    pod = scene.create("p")
    await scene.ask(pod, "n1")

    assert "forbidden" in await scene.bind(pod, "n1", "open", "refused")
    assert FULL == promises(scene.cluster, "n1")


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

    scene.context.locks = SlowLocks()  # type: ignore[assignment]
    scene.cluster.put_node(a_node("n1", a_device("GPU-a", memory_mib=9000)))

    assert "the Lease is another's" in await scene.bind(pod, "n1")
    assert 0 == scene.api.calls
    assert {} == promises(scene.cluster, "n1")
