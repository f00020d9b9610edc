"""
Containers that were started with a share and without a device plugin.
"""

from dataclasses import replace

import pytest

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.watchdog.findings import Evidence, Finding, Kind, grants
from hami_monitor.decide.watchdog.group_use import find_unprepared

from .values import GPU_A, a_granted_pod, a_place, an_owner

KEY = ContainerKey("u1", "main")


def test_started_container_without_a_directory_is_found() -> None:
    """It was started without the device plugin. The sentence says what to do."""
    found = find_unprepared([a_place()], {"u1": an_owner()}, grants([a_granted_pod()]), {ContainerKey("u1", "other")})

    assert [Evidence(Finding(Kind.WITHOUT_DEVICES, a_place()))] == [*found]
    assert [
        f"Container main has a share of device {GPU_A} and no directory for its library: the kubelet started it "
        "without asking the device plugin, so it has no device and no limit. Delete the Pod"
    ] == [*found.values()]


@pytest.mark.parametrize(
    ("directories", "unpreloaded", "without_library"),
    [
        pytest.param({KEY}, frozenset(), frozenset(), id="prepared"),
        pytest.param(None, frozenset(), frozenset(), id="unknown"),
        pytest.param(frozenset(), {KEY}, frozenset(), id="started-without-library"),
        pytest.param(frozenset(), frozenset(), {"main"}, id="library-switched-off"),
    ],
)
def test_container_that_may_lack_a_directory_is_not_found(
    directories: frozenset[ContainerKey] | None, unpreloaded: frozenset[ContainerKey], without_library: frozenset[str]
) -> None:
    """It has one, or has no library to keep there, or nobody knows."""
    owner = replace(an_owner(), without_library=frozenset(without_library))

    assert {} == find_unprepared([a_place()], {"u1": owner}, grants([a_granted_pod()], unpreloaded), directories)
