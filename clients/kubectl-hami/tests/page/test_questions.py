"""
What the page asks, how often, and what it remembers.
"""

import json
from typing import Any

import pytest

from hamicommon.errors import HamiError
from kubectl_hami.page.history import History, Series
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
    return Questions(told.read_picture, told.read_explanation, told.read_events, clock=clock, **more)


def a_pod_that_uses(*used_mib: int | None) -> dict[str, Any]:
    """Return a picture of one Pod with a share for each amount."""
    shares = [a_share("train", container=f"c{place}", usedMemoryMib=used) for place, used in enumerate(used_mib)]
    return a_picture(a_node("node-a", a_device("node-a", 0, *shares)))


def test_several_windows_share_a_picture_until_it_is_old(told: Told, clock: Clock) -> None:
    """The API server is asked once in five seconds, however many look."""
    questions = asked(told, clock)
    first = questions.picture()
    told.picture = a_picture(cluster="other")

    assert first == questions.picture()
    clock.now += 5
    assert "other" == json.loads(questions.picture())["cluster"]


def test_use_over_time_is_what_the_pictures_showed(told: Told, clock: Clock) -> None:
    """The sum over a Pod's shares. One that nothing measured counts nothing; where none is known there is a gap."""
    questions = asked(told, clock)
    for used in ((100, 20), (150, None), (None, None), (90, 10)):
        told.picture = a_pod_that_uses(*used)
        questions.picture()
        clock.now += 5

    history = json.loads(questions.story("default", "train"))["history"]

    assert {
        "times": [1000, 1005, 1010, 1015],
        "usedMib": [120, 150, None, 100],
        "grantedMib": 6000,
        "source": "since this page was opened",
    } == history


def test_each_part_of_a_story_may_fail_alone(told: Told, clock: Clock) -> None:
    """Without rights on Events, or without a scheduler, the rest is told."""

    def no_history(namespace: str, name: str, now: float) -> Series:
        raise HamiError("Prometheus does not answer")

    told.events["default/train"] = [{"reason": "Started"}]
    story = json.loads(asked(told, clock, read_history=no_history).story("default", "train"))

    assert {
        "explanation": None,
        "explanationProblem": "the scheduler does not know Pod default/train",
        "events": [{"reason": "Started"}],
        "history": None,
        "historyProblem": "Prometheus does not answer",
    } == story


def test_history_is_a_ring(clock: Clock) -> None:
    """The oldest samples go."""
    history = History(samples=3)
    for number in range(5):
        history.record(number, {"a/b": number * 10})

    assert ((2, 3, 4), (20, 30, 40)) == (history.of("a/b").times, history.of("a/b").used_mib)


def test_history_begins_with_the_first_known_sample_and_forgets_pods_that_are_gone() -> None:
    """A Pod that has ended for a whole ring costs nothing any more."""
    history = History(samples=3, pods=1)
    history.record(0, {})
    history.record(1, {"a/b": 7})
    assert ((1,), (7,)) == (history.of("a/b").times, history.of("a/b").used_mib)

    for number in range(2, 8):
        history.record(number, {})
    history.record(8, {"c/d": 1})

    assert () == history.of("a/b").times
    assert (8,) == history.of("c/d").times


def test_history_of_more_pods_than_it_holds_is_left_out() -> None:
    """The number of Pods bounds the memory."""
    history = History(samples=3, pods=1)

    history.record(0, {"a/b": 1, "c/d": 2})

    assert [(0,), ()] == [history.of("a/b").times, history.of("c/d").times]
