"""
Pods are evicted only for the findings that the settings name, late, rarely, and by the API server.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hami_monitor.adapters.kube import Events, Pods
from hami_monitor.config import read_config
from hami_monitor.decide.watchdog.confirmation import (
    EVICTION_SECONDS,
    PAUSE_SECONDS,
    RETRY_SECONDS,
    Seen,
    recent,
    to_evict,
)
from hami_monitor.decide.watchdog.findings import Evidence, Finding, Kind
from hami_monitor.serve.evictions import Evictions
from hamicommon.runtime.api.kube import Kube
from testbed.waiting import eventually

from ..pod_server import PodServer
from .values import a_place

MEMORY = Finding(Kind.MEMORY_ABOVE_GRANT, a_place())
LIBRARY = Finding(Kind.LIBRARY_NOT_LOADED, a_place(pod_uid="u2"))
OTHER = Finding(Kind.MEMORY_ABOVE_GRANT, a_place(pod_uid="u3"))
NOW = 1000.0
BOTH = frozenset({Kind.MEMORY_ABOVE_GRANT, Kind.LIBRARY_NOT_LOADED})


def seen(since: Mapping[Finding, float]) -> Seen:
    """Return findings that last since these seconds."""
    return Seen({Evidence(finding): seconds for finding, seconds in since.items()}, frozenset(since))


def test_no_kind_is_evicted_for_unless_it_is_named() -> None:
    """By default none is."""
    found = seen({MEMORY: 0.0, LIBRARY: 0.0})

    assert to_evict(found, frozenset(), {}, NOW) is None
    assert LIBRARY == to_evict(found, {Kind.LIBRARY_NOT_LOADED}, {}, NOW)


def test_finding_must_last_longer_than_to_be_reported() -> None:
    """The Event comes before the eviction."""
    assert to_evict(seen({MEMORY: NOW - EVICTION_SECONDS + 0.1}), BOTH, {}, NOW) is None
    assert MEMORY == to_evict(seen({MEMORY: NOW - EVICTION_SECONDS}), BOTH, {}, NOW)


def test_oldest_finding_comes_first_and_the_next_after_a_pause() -> None:
    """A mistake reaches few Pods before somebody sees it."""
    found = seen({MEMORY: 100.0, LIBRARY: 50.0, OTHER: 200.0})

    assert LIBRARY == to_evict(found, BOTH, {}, NOW)
    assert to_evict(found, BOTH, {"u2": NOW - PAUSE_SECONDS + 0.1}, NOW) is None
    assert MEMORY == to_evict(found, BOTH, {"u2": NOW - PAUSE_SECONDS}, NOW)
    assert OTHER == to_evict(found, BOTH, {"u2": NOW - PAUSE_SECONDS, "u1": NOW - PAUSE_SECONDS}, NOW)


def test_same_pod_is_tried_again_much_later() -> None:
    """It ends meanwhile, or its budget may allow it by then."""
    tried = {"u1": NOW - RETRY_SECONDS + 0.1}

    assert to_evict(seen({MEMORY: 0.0}), BOTH, tried, NOW) is None
    assert MEMORY == to_evict(seen({MEMORY: 0.0}), BOTH, {"u1": NOW - RETRY_SECONDS}, NOW)
    assert (tried, {}) == (recent(tried, NOW), recent(tried, NOW + 1))


def test_unknown_finding_is_refused_at_the_start(capsys: pytest.CaptureFixture[str]) -> None:
    """With the known ones."""
    environment = {"NODE_NAME": "n1", "HOOK_PATH": "/x"}
    arguments = ["--watchdog-evict=memory-above-grant, library-not-loaded"]

    assert frozenset() == read_config([], environment).watchdog_evict
    assert BOTH == read_config(arguments, environment).watchdog_evict
    with pytest.raises(SystemExit):
        read_config(["--watchdog-evict=memory"], environment)
    assert "--watchdog-evict: 'memory' is not one of memory-above-grant, device-not-" in capsys.readouterr().err


@pytest.fixture
async def evictions(pod_server: PodServer, tmp_path: Path) -> AsyncIterator[Evictions]:
    """Yield the evictions of a Node for one kind of findings."""
    async with await Kube.connect(str(pod_server.kubeconfig(tmp_path)), "test") as kube:
        events = Events(kube)
        made = Evictions(Pods(kube, "n1"), events, frozenset({Kind.MEMORY_ABOVE_GRANT}))
        running = [asyncio.create_task(one.run()) for one in (events, made)]
        yield made
        for task in running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.mark.parametrize(
    ("status", "result", "reason", "message"),
    [
        (201, "evicted", "EvictedByWatchdog", "Evicted for memory-above-grant: it has too much"),
        (429, "refused", "EvictionFailed", "Not evicted for memory-above-grant: the budget needs 1 healthy Pod"),
        (404, "failed", "EvictionFailed", "Not evicted for memory-above-grant: the budget needs 1 healthy Pod"),
    ],
)
async def test_eviction_is_the_api_servers_and_an_event_of_the_pod(
    evictions: Evictions, pod_server: PodServer, status: int, result: str, reason: str, message: str
) -> None:
    """It names the Pod by its UID, so that another one of the same name stays."""
    pod_server.eviction_status = status
    for seconds in (NOW, NOW + 1):
        evictions.consider(seen({MEMORY: 0.0, LIBRARY: 0.0}), {MEMORY: "it has too much"}, seconds)
    await eventually(lambda: pod_server.events)

    expected: dict[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "ns", "name": "pod-u1"},
        "deleteOptions": {"preconditions": {"uid": "u1"}},
    }
    assert [expected] == pod_server.evictions
    assert {result: 1} == evictions.counts
    [event] = pod_server.events
    assert ("u1", reason, message) == (event["involvedObject"]["uid"], event["reason"], event["message"])


async def test_api_server_that_does_not_answer_holds_nothing_up(evictions: Evictions, pod_server: PodServer) -> None:
    """The watchdog goes on, and one eviction waits at most."""
    await pod_server.stop()
    for number in range(3):
        evictions.consider(seen({MEMORY: 0.0}), {MEMORY: "it has too much"}, NOW + number * RETRY_SECONDS)
    await eventually(lambda: evictions.counts["failed"])

    assert not pod_server.evictions
