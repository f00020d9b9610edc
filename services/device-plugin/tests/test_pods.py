"""
What is read from a Pod: its containers, and the shares of each.
"""

from typing import Any

import pytest
from device_plugin_builders import VENDOR, a_pod, container, share, shares
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.pods import assign, granted_shares
from hamicommon.errors import HamiError


@pytest.mark.parametrize(
    ("granted", "asked", "expected"),
    [
        pytest.param((1, 0, 2), (1, 0, 2), (1, 0, 2), id="by position"),
        pytest.param((1, 2, 0, 0), (1, 2), (1, 2), id="surplus empties"),
        pytest.param((2,), (0, 2), (0, 2), id="lost empties, HAMi 2899"),
        pytest.param((1, 2), (0, 1, 0, 2), (0, 1, 0, 2), id="lost empties between"),
        pytest.param((1, 1), (1, 0, 1), (1, 0, 1), id="lost empty in the middle"),
        pytest.param((), (1, 1), (0, 0), id="nothing granted"),
    ],
)
def test_shares_are_placed_with_the_containers_that_ask(
    granted: tuple[int, ...], asked: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Numbers are shares by container."""
    placed = assign(tuple(map(shares, granted)), [container(count) for count in asked])

    assert expected == tuple(map(len, placed))


def test_shares_written_before_init_containers_counted_go_to_the_main_ones() -> None:
    """Schedulers before HAMi 2.9 granted nothing to init containers."""
    containers = [container(1, is_init=True), container(2)]

    assert ((), shares(2)) == assign((shares(2),), containers)


@pytest.mark.property
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_places_survive_the_loss_of_empty_ones(asked: list[int]) -> None:
    """Leaving out the empty lists changes no container's shares."""
    containers = [container(count) for count in asked]
    whole = tuple(tuple(share(f"GPU-{place}-{n}") for n in range(count)) for place, count in enumerate(asked))

    assert whole == assign(whole, containers)
    assert whole == assign(tuple(granted for granted in whole if granted), containers)


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_control_is_disabled_by_gos_true(value: str) -> None:
    """Any of several entries of the variable counts."""
    env = [{"name": "CUDA_DISABLE_CONTROL", "value": "0"}, {"name": "CUDA_DISABLE_CONTROL", "value": value}]
    pod = a_pod(containers=[{"name": "main", "env": env}])

    assert pod.containers[0].is_control_disabled


@pytest.mark.parametrize("entry_", [{}, {"value": "yes"}, {"value": ""}, {"valueFrom": {"fieldRef": {}}}])
def test_control_stays_on_for_anything_else(entry_: dict[str, Any]) -> None:
    """References are not followed, as in HAMi."""
    pod = a_pod(containers=[{"name": "main", "env": [{"name": "CUDA_DISABLE_CONTROL"} | entry_]}])

    assert not pod.containers[0].is_control_disabled


def test_allocation_for_another_node_is_not_believed() -> None:
    """The annotation names a Node that the Pod did not get to."""
    pod = a_pod({"hami.io/vgpu-node": "n2", VENDOR.allocated_key: "GPU-a,NVIDIA,1,1:;"})

    with pytest.raises(HamiError, match="is 'n2', but it runs on Node 'n1'"):
        granted_shares(pod, "n1", VENDOR)


@pytest.mark.parametrize(("spec", "expected"), [({}, True), ({"hostUsers": True}, True), ({"hostUsers": False}, False)])
def test_pod_with_a_user_namespace_is_known(spec: dict[str, Any], expected: bool) -> None:
    """There no hook may mark a file of the host, so its containers are not expected to be marked."""
    assert expected is a_pod(**spec).has_host_users


def test_choices_of_the_author_are_literal_values() -> None:
    """The author's policy and priority are kept; a value from a ConfigMap is not known."""
    env = [
        {"name": "GPU_CORE_UTILIZATION_POLICY", "value": "disable"},
        {"name": "CUDA_TASK_PRIORITY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
        {"name": "CUDA_DEVICE_SM_LIMIT", "value": "100"},
    ]
    pod = a_pod(containers=[{"name": "main", "env": env}])

    assert {"GPU_CORE_UTILIZATION_POLICY": "disable"} == pod.containers[0].choices
