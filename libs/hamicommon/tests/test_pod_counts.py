"""
What a Pod's kubelet counts for its whole life, beside the kubelet's rule of which ids containers reuse.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.pod.amounts import AMOUNT_LIMIT, effective_counts

GPU = "nvidia.com/gpu"
NAMES = frozenset({GPU, "hygon.com/dcunum"})


def asking(amount: object, *, sidecar: bool = False, resource: str = GPU) -> dict[str, Any]:
    """Return a container with a limit of *amount*."""
    found: dict[str, Any] = {"name": "c", "resources": {"limits": {resource: amount}}}
    return {**found, "restartPolicy": "Always"} if sidecar else found


def a_pod(inits: list[dict[str, Any]], apps: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a Pod of *inits* and *apps*."""
    return {"spec": {"initContainers": inits, "containers": apps}}


@pytest.mark.parametrize(
    ("inits", "apps", "expected"),
    [
        pytest.param([], [asking("1"), asking("2")], 3, id="app containers add up"),
        pytest.param([asking("2")], [asking("1")], 2, id="larger init container"),
        pytest.param([asking("1")], [asking("2")], 2, id="init container's are reused"),
        pytest.param([asking("2"), asking("3")], [asking("1")], 3, id="largest init container"),
        pytest.param([asking("1", sidecar=True)], [asking("2")], 3, id="sidecar beside the app"),
        pytest.param([asking("1", sidecar=True), asking("3")], [asking("1")], 4, id="init container beside a sidecar"),
        pytest.param([asking("3"), asking("1", sidecar=True)], [asking("1")], 3, id="sidecar reuses"),
        pytest.param([asking("1", sidecar=True), {"name": "i"}], [{"name": "a"}], 1, id="sidecar alone"),
        pytest.param([asking("2")], [{"name": "a"}], 2, id="init container alone"),
    ],
)
def test_pod_holds_the_most_of_its_whole_life(
    inits: list[dict[str, Any]], apps: list[dict[str, Any]], expected: int
) -> None:
    """The kubelet keeps what init containers had until the Pod ends, and lets later containers reuse it."""
    assert {GPU: expected} == effective_counts(a_pod(inits, apps), NAMES)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("2k", 2000), ("1000m", 1), ("1500m", 2), (3, 3), ("0", 0), ("-1", 0), ("much", 0), ("9" * 19, AMOUNT_LIMIT)],
)
def test_amount_is_read_as_a_kubelet_reads_it(amount: object, expected: int) -> None:
    """Any quantity counts, rounded up; what is none counts nothing."""
    assert expected == effective_counts(a_pod([], [asking(amount)]), NAMES).get(GPU, 0)


def test_only_named_resources_count() -> None:
    """Each resource has its own sum, and memory has none."""
    pod = a_pod(
        [], [asking("1"), asking("2", resource="hygon.com/dcunum"), asking("3000", resource="nvidia.com/gpumem")]
    )

    assert {GPU: 1, "hygon.com/dcunum": 2} == effective_counts(pod, NAMES)
    assert {} == effective_counts({"spec": {"containers": [{"name": "a", "resources": None}]}}, NAMES)


def test_request_counts_without_a_limit() -> None:
    """The API server demands both to be equal; a Pod from a file may have one."""
    container = {"name": "c", "resources": {"requests": {GPU: "2"}}}

    assert {GPU: 2} == effective_counts(a_pod([], [container]), NAMES)


CONTAINERS = st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=5)


@pytest.mark.property
@given(CONTAINERS, st.lists(st.integers(0, 4), min_size=1, max_size=4))
def test_count_is_that_of_the_kubelets_reuse(inits: list[tuple[int, bool]], apps: list[int]) -> None:
    """Hand out ids container by container, as the kubelet does: ordinary init containers leave theirs for reuse."""
    held: set[int] = set()
    reusable: list[int] = []
    for amount, keeps in [*inits, *((amount, True) for amount in apps)]:
        got = reusable[:amount]
        fresh = range(len(held), len(held) + amount - len(got))
        held |= set(fresh)
        reusable = reusable[len(got) :] if keeps else [*reusable, *fresh]
    pod = a_pod([asking(amount, sidecar=is_sidecar) for amount, is_sidecar in inits], [asking(n) for n in apps])

    assert len(held) == effective_counts(pod, NAMES).get(GPU, 0)
