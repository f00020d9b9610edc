"""
Device time: offered is held plus idle, and nothing counts twice or not at all.
"""

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.accounts import book as book_module
from hami_monitor.decide.accounts.book import (
    KEPT_SECONDS,
    Book,
    PodKey,
    ShareAccount,
    advance,
)
from hami_monitor.decide.accounts.book_text import BookError, decode_book, encode_book
from hami_monitor.decide.accounts.price import Offer, parts
from hami_monitor.decide.pods import monitored_pod
from hami_monitor.decide.share_time import LASTING, ShareTime
from hamicommon.model import Share
from hamicommon.pod.containers import ContainerKind

HOUR = 3600.0
BEGIN = 1_000_000.0
H100 = Offer("NVIDIA H100", 80_000, 100)
OFFERS = {"GPU-a": H100}
NOBODY: dict[PodKey, float] = {}


def a_share(memory_mib: int = 20_000, core_percent: int = 25, uuid: str = "GPU-a") -> Share:
    """Return a share, by default a quarter of an H100."""
    return Share(uuid, "NVIDIA", memory_mib, core_percent)


def a_share_time(name: str, *shares: Share, **more: Any) -> ShareTime:
    """Return how long the Pod *name* holds *shares*, by default a quarter of a device from BEGIN on."""
    defaults: dict[str, Any] = {"began_seconds": BEGIN, "prepared_seconds": BEGIN}
    return ShareTime("team", name, ((ContainerKind.APP, shares or (a_share(),)),), **(defaults | more))


def a_book(*uuids: str, until_seconds: float = BEGIN) -> Book:
    """Return the book of a Node that offers *uuids* and has counted nothing yet."""
    return advance(Book(until_seconds), until_seconds, dict.fromkeys(uuids or OFFERS, H100), (), NOBODY)


def held(book: Book) -> dict[str, float]:
    """Return the seconds that each Pod has held."""
    return {key.pod: account.held_seconds for key, account in book.pods.items()}


def test_four_quarters_for_an_hour_are_one_device_hour_and_so_is_a_whole_device() -> None:
    """What is left of a third device is idle, so the books close."""
    offers = dict.fromkeys(("GPU-a", "GPU-b", "GPU-c"), H100)
    quarters = [a_share_time(f"quarter-{index}") for index in range(4)]
    whole = a_share_time("whole", a_share(80_000, 0, "GPU-b"))

    book = advance(a_book(*offers), BEGIN + HOUR, offers, [*quarters, whole], NOBODY)

    assert {"quarter-0": 900, "quarter-1": 900, "quarter-2": 900, "quarter-3": 900, "whole": HOUR} == held(book)
    assert {"GPU-a": (HOUR, 0), "GPU-b": (HOUR, 0), "GPU-c": (0, HOUR)} == {
        uuid: (account.held_seconds, account.idle_seconds) for uuid, account in book.devices.items()
    }


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (a_share(memory_mib=20_000, core_percent=0), 0.25),
        (a_share(memory_mib=20_000, core_percent=60), 0.6),
        (a_share(memory_mib=60_000, core_percent=60), 0.75),
        (a_share(memory_mib=900_000, core_percent=900), 1.0),
        (a_share(memory_mib=-1, core_percent=-1), 0.0),
    ],
    ids=["memory alone", "more compute", "more memory", "more than there is", "less than nothing"],
)
def test_share_is_priced_by_the_larger_part(share: Share, expected: float) -> None:
    """Nobody else can have the rest of it."""
    assert {"GPU-a": expected} == parts(((ContainerKind.APP, (share,)),), OFFERS, is_prepared=True)


def test_shares_that_complement_each_other_pay_for_one_device() -> None:
    """Each pays in proportion, and only while both are there."""
    memory = a_share_time("memory", a_share(60_000, 0))
    compute = a_share_time("compute", a_share(0, 75), began_seconds=BEGIN + HOUR)

    book = advance(a_book(), BEGIN + 2 * HOUR, OFFERS, [memory, compute], NOBODY)

    assert {"memory": 0.75 * HOUR + 0.5 * HOUR, "compute": 0.5 * HOUR} == held(book)
    assert (1.75 * HOUR, 0.25 * HOUR) == (book.devices["GPU-a"].held_seconds, book.devices["GPU-a"].idle_seconds)


def test_init_container_pays_until_it_has_ended() -> None:
    """Containers that do not run at once do not add up; a sidecar runs beside both."""
    containers = (
        (ContainerKind.SIDECAR, (a_share(8_000, 0),)),
        (ContainerKind.INIT, (a_share(40_000, 0),)),
        (ContainerKind.APP, (a_share(20_000, 0),)),
    )
    share_time = replace(a_share_time("p", prepared_seconds=BEGIN + 600), containers=containers)

    book = advance(a_book(), BEGIN + HOUR, OFFERS, [share_time], NOBODY)

    assert held(book) == {"p": pytest.approx(600 * 0.6 + 3000 * 0.35)}


def test_pod_that_came_and_went_between_two_advances_is_counted() -> None:
    """Its moments count, and not when somebody looked."""
    share_time = a_share_time("p", began_seconds=BEGIN + 10, prepared_seconds=BEGIN + 10, ended_seconds=BEGIN + 30)

    book = advance(a_book(), BEGIN + HOUR, OFFERS, [share_time], NOBODY)

    assert {"p": 5} == held(book)


def test_time_before_the_first_book_and_without_the_device_does_not_count() -> None:
    """A device is offered from when it was first seen, and not while the Node does not list it."""
    first = a_book(until_seconds=BEGIN + 100)
    without = advance(first, BEGIN + 200, {}, [a_share_time("p")], NOBODY)
    book = advance(without, BEGIN + 300, OFFERS, [a_share_time("p")], NOBODY)

    assert {"p": 25} == held(book)
    assert 75 == book.devices["GPU-a"].idle_seconds


MOMENTS = st.floats(0, 1000).map(lambda offset: BEGIN + offset)
SHARES = st.builds(
    a_share, st.integers(0, 90_000), st.integers(0, 110), st.sampled_from(["GPU-a", "GPU-b", "GPU-unknown"])
)


@st.composite
def share_times(draw: st.DrawFn) -> list[ShareTime]:
    """Return what up to six Pods hold, in any order of moments."""
    return [
        a_share_time(
            f"p{index}",
            *draw(st.lists(SHARES, min_size=1, max_size=3)),
            began_seconds=draw(MOMENTS),
            prepared_seconds=draw(MOMENTS),
            ended_seconds=draw(st.one_of(MOMENTS, st.just(LASTING))),
        )
        for index in range(draw(st.integers(0, 6)))
    ]


@pytest.mark.property
@given(share_times(), st.lists(MOMENTS, max_size=6), st.booleans())
def test_books_close_and_any_restarts_give_the_same(pods: list[ShareTime], stops: list[float], is_sorted: bool) -> None:
    """Held and idle are what was offered, and a book that was closed and opened again at any moments is the same."""
    offers = dict.fromkeys(("GPU-a", "GPU-b"), H100)
    until = BEGIN + 1000
    once = advance(a_book(*offers), until, offers, pods, NOBODY)
    often = a_book(*offers)
    for stop in [*(sorted(stops) if is_sorted else stops), until]:
        often = decode_book(encode_book(advance(often, stop, offers, pods, NOBODY)))

    for book in (once, often):
        assert math.isclose(
            sum(held(book).values()), sum(one.held_seconds for one in book.devices.values()), abs_tol=1e-6
        )
        assert [pytest.approx(1000)] * 2 == [one.held_seconds + one.idle_seconds for one in book.devices.values()]
        assert all(one.held_seconds >= 0 <= one.idle_seconds for one in book.devices.values())
    assert held(often) == pytest.approx(held(once), abs=1e-6)


def test_use_is_added_to_pods_that_hold_something() -> None:
    """A name that holds nothing here cannot have used anything."""
    key, other = PodKey("team", "p", H100.type), PodKey("team", "x", H100.type)

    book = advance(a_book(), BEGIN + 10, OFFERS, [a_share_time("p")], {key: 1.5, other: 9})
    book = advance(book, BEGIN + 10, OFFERS, [a_share_time("p")], {key: 1.5})

    assert {key: 3.0} == {pod: account.used_seconds for pod, account in book.pods.items()}


def test_row_of_an_ended_pod_stays_an_hour_and_its_namespace_keeps_what_it_held() -> None:
    """So the sum of a namespace never falls."""
    share_time = a_share_time("p", ended_seconds=BEGIN + 60)
    ended = advance(a_book(), BEGIN + 60, OFFERS, [share_time], NOBODY)
    kept = advance(ended, BEGIN + 60 + KEPT_SECONDS, OFFERS, [], NOBODY)
    dropped = advance(kept, BEGIN + 61 + KEPT_SECONDS, OFFERS, [], NOBODY)

    assert [{"p": 15}, {"p": 15}, {}] == [held(ended), held(kept), held(dropped)]
    assert [15] == [account.held_seconds for account in dropped.namespaces.values()]


def test_rows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest rows go first, those that hold something now stay."""
    for name, most in (("PODS_MAX", 3), ("NAMESPACES_MAX", 2), ("DEVICES_MAX", 1)):
        monkeypatch.setattr(book_module, name, most)
    book = advance(Book(BEGIN), BEGIN, {"GPU-old": H100}, [], NOBODY)
    for index in range(10):
        share_time = replace(a_share_time(f"p{index}", began_seconds=BEGIN + index), namespace=f"n{index}")
        book = advance(book, BEGIN + index + 1, OFFERS, [a_share_time("stays"), share_time], NOBODY)

    assert ["p8", "p9", "stays"] == sorted(key.pod for key in book.pods)
    assert ["n9", "team"] == sorted(key.namespace for key in book.namespaces)
    assert ["GPU-a"] == list(book.devices)


def test_book_reads_what_it_wrote() -> None:
    """Names of any characters, and every number."""
    book = advance(a_book(), BEGIN + 1 / 3, OFFERS, [a_share_time('"\\ü')], NOBODY)

    assert book == decode_book(encode_book(book))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not JSON"),
        (b"\0" * 100, "not JSON"),
        (b"[]", "version None, expected 1"),
        (b'{"version":2}', "version 2, expected 1"),
        (b'{"version":1}', "a field is missing"),
        (
            b'{"version":1,"untilSeconds":1,"pods":[["n","p","t",-1,0,0]],"namespaces":[],"devices":[]}',
            "-1 is not a number of seconds",
        ),
        (b'{"version":1,"untilSeconds":1,"pods":[["n","p",7,1,0,0]],"namespaces":[],"devices":[]}', "7 is not a text"),
        (b'{"version":1,"untilSeconds":true,"pods":[],"namespaces":[],"devices":[]}', "True is not a number"),
        (b'{"version":1,"untilSeconds":1,"pods":[["n"]],"namespaces":[],"devices":[]}', "a field is missing or wrong"),
    ],
)
def test_anything_else_is_no_book(content: bytes, problem: str) -> None:
    """It is refused as a whole, with the reason."""
    with pytest.raises(BookError, match=problem):
        decode_book(content)


def moments(**status: Any) -> tuple[float, float, float]:
    """Return when a Pod with *status* began, was prepared, and ended."""
    metadata = {
        "uid": "u",
        "name": "p",
        "namespace": "n",
        "creationTimestamp": "1970-01-01T00:00:05Z",
        "annotations": {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1,1:;GPU-a,NVIDIA,1,1:;",
        },
    }
    limits = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"initContainers": [{"name": "i", **limits}], "containers": [{"name": "c", **limits}]}
    pod = monitored_pod({"metadata": metadata, "spec": spec, "status": status}, "n1")
    assert pod is not None
    assert pod.share_time is not None
    return pod.share_time.began_seconds, pod.share_time.prepared_seconds, pod.share_time.ended_seconds


def ended(name: str, second: int, code: int = 0) -> dict[str, Any]:
    """Return the status of a container that ended."""
    return {"name": name, "state": {"terminated": {"exitCode": code, "finishedAt": f"1970-01-01T00:00:{second}Z"}}}


def scheduled(second: int, status: str = "True") -> dict[str, str]:
    """Return the condition of a Pod that was bound."""
    return {"type": "PodScheduled", "status": status, "lastTransitionTime": f"1970-01-01T00:00:{second}Z"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, (5, LASTING, LASTING)),
        ({"startTime": "1970-01-01T00:00:12Z"}, (12, LASTING, LASTING)),
        ({"conditions": [scheduled(11)], "startTime": "1970-01-01T00:00:12Z"}, (11, LASTING, LASTING)),
        ({"conditions": [scheduled(11, "False")]}, (5, LASTING, LASTING)),
        ({"conditions": [{"type": "PodScheduled", "status": "True"}]}, (5, LASTING, LASTING)),
        ({"conditions": [scheduled(11)], "initContainerStatuses": [ended("i", 20)]}, (11, 20, LASTING)),
        ({"conditions": [scheduled(11)], "initContainerStatuses": [ended("i", 20, 1)]}, (11, LASTING, LASTING)),
        (
            {
                "phase": "Succeeded",
                "conditions": [scheduled(11)],
                "initContainerStatuses": [ended("i", 20)],
                "containerStatuses": [ended("c", 40)],
            },
            (11, 20, 40),
        ),
        ({"phase": "Failed", "conditions": [scheduled(11), scheduled(30)]}, (11, LASTING, 30)),
        ({"phase": "Failed"}, (5, LASTING, 5)),
    ],
)
def test_moments_are_those_of_the_api(status: dict[str, Any], expected: tuple[float, float, float]) -> None:
    """Bound, prepared and ended, as the API server and the kubelet say; an unknown end gives the Pod no time."""
    assert expected == moments(**status)


def test_pod_row_is_of_the_model_of_its_devices() -> None:
    """A Pod with two models has two rows, as each has its price."""
    offers = {"GPU-a": H100, "GPU-b": Offer("NVIDIA T4", 16_000, 100)}
    share_time = a_share_time("p", a_share(), a_share(16_000, 0, "GPU-b"))

    book = advance(a_book(*offers), BEGIN + 100, offers, [share_time], NOBODY)

    assert {PodKey("team", "p", "NVIDIA H100"): 25, PodKey("team", "p", "NVIDIA T4"): 100} == {
        key: account.held_seconds for key, account in book.pods.items()
    }


def rows(accounts: Iterable[ShareAccount]) -> list[float]:
    """Return the held seconds of *accounts*."""
    return [account.held_seconds for account in accounts]


def test_share_of_an_old_mig_slot_is_of_its_device() -> None:
    """HAMi 2.5 to 2.9 wrote the slot behind the UUID."""
    book = advance(a_book(), BEGIN + 100, OFFERS, [a_share_time("p", a_share(uuid="GPU-a[1-3]"))], NOBODY)

    assert [25] == rows(book.pods.values())
