"""
Promised against real.
"""

from typing import Any

import pytest

from kubectl_hami.answer.grants import Comparison, comparisons
from kubectl_hami.answer.state import state_of

from .builders import a_cluster, a_device, a_node, a_pod, a_scrape, a_share

MIB = 2**20


def compared(*metrics: dict[str, float], phase: str = "success", memory_mib: int = 3000, **device: Any) -> Comparison:
    """Return the comparison of the share of `default/p`, of which the monitor exports *metrics*."""
    pod = a_pod("p", a_share(memory_mib=memory_mib))
    pod["metadata"]["annotations"]["hami.io/bind-phase"] = phase
    scrape = b"".join(a_scrape(values) for values in metrics) + b"up 1\n"
    state = state_of(a_cluster(nodes=(a_node("n1", a_device(**device)),), pods=(pod,), monitors={"n1": scrape}))
    [found] = comparisons(state)
    return found


def test_limit_that_is_the_grant_is_a_kept_promise() -> None:
    """The library reads it from the region."""
    found = compared({"hami_vgpu_memory_limit_bytes": 3000 * MIB, "hami_vgpu_memory_used_bytes": 1000 * MIB})

    assert ("kept", "the container's limit is its grant") == (found.verdict, found.why)


@pytest.mark.parametrize(
    ("limit_mib", "why"),
    [(4000, "its limit is 4000 MiB, and 3000 MiB are granted"), (0, "its limit is no MiB, and 3000 MiB are granted")],
)
def test_other_limit_is_a_broken_promise(limit_mib: int, why: str) -> None:
    """A tenant can write its region, so this is what an operator wants to see."""
    found = compared({"hami_vgpu_memory_limit_bytes": limit_mib * MIB})

    assert ("broken", why) == (found.verdict, found.why)


def test_use_above_the_grant_is_a_broken_promise() -> None:
    """Whatever the limit says."""
    found = compared({"hami_vgpu_memory_limit_bytes": 3000 * MIB, "hami_vgpu_memory_used_bytes": 3500 * MIB})

    assert ("broken", "it uses 3500 MiB, and 3000 MiB are granted") == (found.verdict, found.why)


def test_finding_of_the_watchdog_is_a_broken_promise() -> None:
    """It reads the driver, which a tenant cannot change."""
    finding = a_scrape({"hami_monitor_watchdog_findings": 1}, kind="library-not-loaded")
    state = state_of(
        a_cluster(nodes=(a_node("n1", a_device()),), pods=(a_pod("p", a_share()),), monitors={"n1": finding})
    )

    [found] = comparisons(state)

    assert ("broken", "watchdog: library-not-loaded") == (found.verdict, found.why)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "its library has no region yet: the container has made no CUDA call"),
        ({"phase": "allocating"}, "the container has not started: its allocation is in progress"),
        ({"mode": "mig"}, "its MIG instance is the limit"),
        ({"memory_mib": 16384}, "its library has no region yet: the container has made no CUDA call"),
    ],
    ids=("no region", "allocating", "mig", "all memory and some compute"),
)
def test_what_nobody_measured_is_unknown_with_its_reason(options: dict[str, Any], why: str) -> None:
    """Unknown is not kept, and not broken."""
    found = compared(**options)

    assert ("unknown", why) == (found.verdict, found.why)


def test_failed_allocation_is_a_broken_promise() -> None:
    """The Pod holds its share and never starts."""
    assert "broken" == compared(phase="failed").verdict


def test_device_that_is_gone_is_a_broken_promise() -> None:
    """The container was promised it."""
    state = state_of(a_cluster(nodes=(a_node("n1"),), pods=(a_pod("p", a_share()),)))

    [found] = comparisons(state)

    assert ("broken", "node n1 no longer offers the device") == (found.verdict, found.why)


def test_one_pod_can_be_asked_for() -> None:
    """The others are left out."""
    pods = (a_pod("p", a_share()), a_pod("q", a_share()))
    state = state_of(a_cluster(nodes=(a_node("n1", a_device()),), pods=pods))

    assert ["q"] == [one.share.pod for one in comparisons(state, "q")]
