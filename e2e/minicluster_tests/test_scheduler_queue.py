"""
The queue loses no Pod, keeps its order, and waits for the right times.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minicluster.kubescheduler.fit import PLUGIN_AFFINITY, PLUGIN_EXTENDER, PLUGIN_RESOURCES, PLUGIN_TAINTS
from minicluster.kubescheduler.queue import Event, Queue, QueuedPod

EXTENDER = frozenset({PLUGIN_EXTENDER})


def a_pod(uid: str = "u", priority: int = 0, **spec: Any) -> dict[str, Any]:
    """Return a Pod with the fields that the queue reads."""
    return {"metadata": {"uid": uid}, "spec": {"priority": priority, **spec}}


def a_queue(*names: str) -> Queue:
    """Return a queue with Pods that were added one after the other."""
    queue = Queue(1.0, 10.0, now=0.0)
    for index, name in enumerate(names):
        queue.add(("ns", name), a_pod(name), index * 0.001)
    return queue


def popped(queue: Queue, now: float) -> QueuedPod:
    """Return the next Pod, which must exist."""
    queued = queue.pop(now)
    assert queued is not None
    return queued


def test_pods_come_in_order_of_priority_then_arrival() -> None:
    """
    A later Pod of higher priority overtakes.
    """
    queue = a_queue("a", "b")
    queue.add(("ns", "c"), a_pod("c", priority=5), 1.0)

    assert ["c", "a", "b"] == [popped(queue, 2.0).uid for _ in range(3)]


def test_rejected_pod_waits_for_an_event_and_skips_its_back_off_on_an_idle_queue() -> None:
    """
    With SchedulerPopFromBackoffQ, a woken Pod is taken at once if no other is active.
    """
    queue = a_queue("a")
    queue.refused(popped(queue, 0.0), EXTENDER, 0.0)

    assert None is queue.pop(100.0)
    queue.happened(Event.NODE_ANNOTATIONS, 100.0)
    assert "a" == popped(queue, 100.0).uid


def test_fresh_pods_go_before_woken_ones_in_back_off() -> None:
    """
    Pods in back-off are tried only if no other is active.
    """
    queue = a_queue("refused")
    queue.refused(popped(queue, 0.0), EXTENDER, 0.0)
    queue.happened(Event.ASSIGNED_POD_DELETED, 0.1)
    queue.add(("ns", "fresh"), a_pod("fresh"), 0.2)

    assert ["fresh", "refused"] == [popped(queue, 0.3).uid for _ in range(2)]


def test_errors_wait_as_measured_on_the_real_scheduler() -> None:
    """
    The back-offs are 1, 2, 4, 8, 10 s, each rounded up to the next second.
    """
    queue = a_queue("a")
    now, tried = 0.8, []
    for _ in range(6):
        queue.failed(popped(queue, now), now)
        queue.happened(Event.NODE_LABELS, now)
        tried.append(round(now, 1))
        now += queue.next_due(now) + 0.01

    assert [0.8, 2.0, 5.0, 10.0, 19.0, 30.0] == tried


def test_rejected_pod_is_retried_after_five_minutes_without_an_event() -> None:
    """
    The limit is 300 s, checked every 30 s.
    """
    queue = a_queue("a")
    queue.refused(popped(queue, 1.0), EXTENDER, 1.0)

    assert None is queue.pop(300.5)
    assert "a" == popped(queue, 331.0).uid


@pytest.mark.parametrize(
    ("plugin", "event", "wakes"),
    [
        (PLUGIN_EXTENDER, Event.NODE_CONDITIONS, True),
        (PLUGIN_EXTENDER, Event.ASSIGNED_POD_UPDATED, True),
        (PLUGIN_RESOURCES, Event.ASSIGNED_POD_DELETED, True),
        (PLUGIN_RESOURCES, Event.NODE_ALLOCATABLE, True),
        (PLUGIN_RESOURCES, Event.NODE_ANNOTATIONS, False),
        (PLUGIN_RESOURCES, Event.ASSIGNED_POD_UPDATED, False),
        (PLUGIN_AFFINITY, Event.NODE_LABELS, True),
        (PLUGIN_AFFINITY, Event.NODE_TAINTS, False),
        (PLUGIN_TAINTS, Event.NODE_TAINTS, True),
        (PLUGIN_TAINTS, Event.ASSIGNED_POD_DELETED, False),
    ],
)
def test_only_events_that_may_help_a_plugin_wake_its_pods(plugin: str, event: Event, wakes: bool) -> None:
    """
    In-tree plugins have hints, and a rejection by an extender has none.
    """
    queue = a_queue("a")
    queue.refused(popped(queue, 0.0), frozenset({plugin}), 0.0)

    queue.happened(event, 5.0)

    assert wakes is (queue.pop(5.0) is not None)


def test_new_tolerations_wake_a_pod_rejected_by_taints_and_new_labels_do_not() -> None:
    """
    A change of the Pod itself is an event.
    """
    queue = a_queue("a")
    queue.refused(popped(queue, 0.0), frozenset({PLUGIN_TAINTS}), 0.0)

    queue.update(("ns", "a"), {**a_pod("a"), "metadata": {"uid": "a", "labels": {"x": "y"}}}, 5.0)
    assert None is queue.pop(5.0)
    queue.update(("ns", "a"), a_pod("a", tolerations=[{"operator": "Exists"}]), 5.0)
    assert "a" == popped(queue, 5.0).uid


class Play:
    """A queue, with a method for each kind of change."""

    def __init__(self, random: Any) -> None:
        self.queue = Queue(1.0, 10.0, 0.0)
        self.now = 0.0
        self.trying: list[QueuedPod] = []
        self._random = random
        self._made = 0

    def add(self) -> None:
        """A Pod is created."""
        self._made += 1
        self.queue.add(("ns", str(self._made)), a_pod(str(self._made)), self.now)

    def pop(self) -> None:
        """The scheduler takes a Pod that it is not trying already."""
        queued = self.queue.pop(self.now)
        if queued is not None:
            assert queued not in self.trying
            self.trying.append(queued)

    def refuse(self) -> None:
        """An attempt finds no Node."""
        if self.trying:
            self.queue.refused(self.trying.pop(self._random.randrange(len(self.trying))), EXTENDER, self.now)

    def fail(self) -> None:
        """An attempt ends in an error."""
        if self.trying:
            self.queue.failed(self.trying.pop(self._random.randrange(len(self.trying))), self.now)

    def event(self) -> None:
        """An event happens."""
        self.queue.happened(self._random.choice(list(Event)), self.now)

    def update(self) -> None:
        """A Pod changes."""
        if self.queue.pods:
            key = self._random.choice(list(self.queue.pods))
            self.queue.update(key, self.queue.pods[key].pod, self.now)

    def remove(self) -> None:
        """A Pod is deleted."""
        if self.queue.pods:
            self.queue.remove(self._random.choice(list(self.queue.pods)))

    def wait(self) -> None:
        """Time passes."""
        self.now += self._random.uniform(0, 20)


STEPS = st.lists(st.sampled_from(["add", "pop", "refuse", "fail", "event", "update", "remove", "wait"]), max_size=40)


@pytest.mark.property
@given(STEPS, st.randoms(use_true_random=False))
def test_every_pod_is_retried_in_the_end(steps: list[str], random: Any) -> None:
    """
    After any sequence of changes, every Pod is tried again, and never twice at once.
    """
    play = Play(random)
    for step in steps:
        play.now += 0.1
        getattr(play, step)()
    while play.trying:
        play.refuse()

    found = []
    for moment in (play.now, play.now + 11, play.now + 400):
        while (queued := play.queue.pop(moment)) is not None:
            found.append(queued.key)

    assert sorted(play.queue.pods) == sorted(found)
