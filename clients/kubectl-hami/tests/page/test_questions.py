"""
What the page asks, how often, and what it remembers.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from hamicommon.errors import HamiError
from kubectl_hami.page.history import History, PictureHistory, Series, Use, combined
from kubectl_hami.page.questions import Questions

from .page import Told
from .pictures import a_device, a_node, a_picture, a_share


class Clock:
    """A clock that tests move."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock at 1000 s."""
    return Clock()


def asked(told: Told, clock: Clock, **more: Any) -> Questions:
    """Return questions that *told* answers."""
    return Questions(told, clock=clock, **more)


def a_pod_that_uses(*uses: tuple[int | None, float | None]) -> dict[str, Any]:
    """Return a picture of one Pod with a share for each pair of MiB and percent."""
    shares = [
        a_share("train", container=f"c{place}", usedMemoryMib=used_mib, usedCorePercent=used_percent)
        for place, (used_mib, used_percent) in enumerate(uses)
    ]
    return a_picture(a_node("node-a", a_device("node-a", 0, *shares)))


def memory(pod: str, history: History) -> list[tuple[float, float | None]]:
    """Return times and memory of *pod*."""
    found = history.of(pod)
    return [(time, use.memory_mib) for time, use in zip(found.times, found.uses, strict=True)]


def test_several_windows_share_a_picture_until_it_is_old(told: Told, clock: Clock) -> None:
    """The API server is asked once in five seconds, however many look."""
    questions = asked(told, clock)
    first = questions.picture()
    told.picture = a_picture(cluster="other")

    assert first == questions.picture()
    clock.now += 5
    assert "other" == json.loads(questions.picture())["cluster"]


def test_a_cluster_that_takes_long_to_read_is_read_less_often(clock: Clock) -> None:
    """Reading takes a tenth of the time at most, and the browser is told when to ask again."""

    class Slow(Told):
        def read_picture(self) -> Mapping[str, Any]:
            clock.now += 4
            return super().read_picture()

    told = Slow()
    questions = asked(told, clock)
    first = questions.picture()
    told.picture = a_picture(cluster="other")
    clock.now += 35.9

    assert 36 == json.loads(first)["refreshSeconds"]
    assert first == questions.picture()
    clock.now += 0.1
    assert "other" == json.loads(questions.picture())["cluster"]


def test_use_over_time_is_what_the_pictures_showed(told: Told, clock: Clock) -> None:
    """The sum over a Pod's shares. One that nothing measured counts nothing; where none is known there is a gap."""
    questions = asked(told, clock)
    for uses in ([(100, 5), (20, 7)], [(150, None), (None, None)], [(None, None)] * 2, [(90, 1.5), (10, 2)]):
        told.picture = a_pod_that_uses(*uses)
        questions.picture()
        clock.now += 5

    history = json.loads(questions.story("default", "train"))["history"]

    assert {
        "times": [1000, 1005, 1010, 1015],
        "usedMib": [120, 150, None, 100],
        "usedPercent": [12, None, None, 3.5],
        "source": "since this page was opened",
    } == history


def test_use_of_a_node_is_the_sum_of_its_devices_memory_and_the_mean_of_their_time(told: Told, clock: Clock) -> None:
    """Each device has its own curve; one that nothing measures has none, and counts nothing."""
    questions = asked(told, clock)
    for used_mib, percent in ((100, 20.0), (300, 40.0)):
        one = a_device("node-a", 0, usedMemoryMib=used_mib, usedCorePercent=percent)
        two = a_device("node-a", 1, usedMemoryMib=1000, usedCorePercent=None)
        unmeasured = a_device("node-a", 2, usedMemoryMib=None, usedCorePercent=None)
        told.picture = a_picture(a_node("node-a", one, two, unmeasured), a_node("node-b", a_device("node-b", 0)))
        questions.picture()
        clock.now += 5

    found = json.loads(questions.node("node-a"))

    assert {
        "times": [1000, 1005],
        "usedMib": [1100, 1300],
        "usedPercent": [20, 40],
        "source": "since this page was opened",
    } == found["history"]
    assert {"GPU-node-a-0": [100, 300], "GPU-node-a-1": [1000, 1000], "GPU-node-a-2": []} == {
        uuid: curve["usedMib"] for uuid, curve in found["devices"].items()
    }
    assert [] == json.loads(questions.node("gone"))["history"]["times"]


def test_curves_of_other_moments_are_put_in_order() -> None:
    """Devices of one Node may have been seen first at different times."""
    early = Series((1, 2), (Use(1, 10), Use(2, 20)), "s")
    late = Series((2, 3), (Use(4, 40), Use(None, None)), "s")

    assert Series((1, 2, 3), (Use(1, 10), Use(6, 30), Use(None, None)), "s") == combined([early, late])
    assert Series((), (), "") == combined([])


def test_each_part_of_a_story_may_fail_alone(told: Told, clock: Clock) -> None:
    """Without rights on Events, or without a scheduler, the rest is told."""

    class NoPast(PictureHistory):
        def pod(self, namespace: str, name: str, now: float) -> Series:
            raise HamiError("Prometheus does not answer")

    told.events["default/train"] = [{"reason": "Started"}]
    story = json.loads(asked(told, clock, past=NoPast()).story("default", "train"))

    assert {
        "explanation": None,
        "explanationProblem": "the scheduler does not know Pod default/train",
        "events": [{"reason": "Started"}],
        "history": None,
        "historyProblem": "Prometheus does not answer",
    } == story


def test_history_is_a_ring() -> None:
    """The oldest samples go."""
    history = History(samples=3)
    for number in range(5):
        history.record(number, {"a/b": Use(number * 10, None)})

    assert [(2, 20), (3, 30), (4, 40)] == memory("a/b", history)


def test_history_begins_with_the_first_known_sample_and_forgets_pods_that_are_gone() -> None:
    """A Pod that has ended for a whole ring costs nothing any more, and another has its place."""
    history = History(samples=3, names=1)
    history.record(0, {})
    history.record(1, {"a/b": Use(7, 1)})
    history.record(2, {})
    assert [(1, 7), (2, None)] == memory("a/b", history)

    for number in range(3, 7):
        history.record(number, {})
    history.record(7, {"c/d": Use(1, 1)})

    assert [] == memory("a/b", history)
    assert [(7, 1)] == memory("c/d", history)


def test_history_of_more_pods_than_it_holds_is_left_out() -> None:
    """The number of Pods bounds the memory."""
    history = History(samples=3, names=1)

    history.record(0, {"a/b": Use(1, 1), "c/d": Use(2, 2)})

    assert [[(0, 1)], []] == [memory("a/b", history), memory("c/d", history)]
