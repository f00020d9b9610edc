"""
Which shares a call is about, from the Pods that wait.
"""

import pytest
from device_plugin_builders import VENDOR, a_pod, container, share, shares

from hami_device_plugin.decide.pending import (
    PendingError,
    chosen_by_kubelet,
    hint,
    is_pending,
    preferred,
    recipient,
    take_next,
)
from hami_device_plugin.decide.replicas.preference import PreferredRequest


def test_hint_is_about_a_waiting_container_of_the_same_size() -> None:
    """Pods are served in the order of their binding; a wrong hint is harmless."""
    waiting = {"hami.io/bind-phase": "allocating", "hami.io/vgpu-node": "n1"}
    early = a_pod(waiting | {"hami.io/bind-time": "1", VENDOR.to_allocate_key: "GPU-a,NVIDIA,1,1:GPU-b,NVIDIA,1,1:;"})
    late = a_pod(waiting | {"hami.io/bind-time": "2", VENDOR.to_allocate_key: "GPU-b,NVIDIA,1,1:;"})
    request = PreferredRequest(("GPU-a::0", "GPU-b::0"), (), 1)

    assert [["GPU-b::0"]] == hint([late, early], "n1", VENDOR, [request])
    assert [None] == hint([], "n1", VENDOR, [request])


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="allocating"),
        pytest.param({"hami.io/bind-phase": "success"}, True, id="half allocated"),
        pytest.param({"hami.io/bind-phase": "failed"}, False, id="failed"),
        pytest.param({"hami.io/vgpu-node": "n2"}, False, id="for another node"),
    ],
)
def test_pod_is_pending_by_its_annotations(changes: dict[str, str], expected: bool) -> None:
    """It is bound to this Node, with a phase that waits."""
    bound = {"hami.io/bind-time": "1", "hami.io/bind-phase": "allocating", "hami.io/vgpu-node": "n1"}

    assert expected == is_pending(a_pod(bound | changes), "n1")
    assert not is_pending(a_pod(bound | changes, phase="Running"), "n1")


def test_containers_are_taken_in_order() -> None:
    """A taken list leaves an empty place."""
    place, granted, left = take_next(((), shares(2), shares(1)))

    assert (1, shares(2), ((), (), shares(1))) == (place, granted, left)
    with pytest.raises(PendingError, match="no pending device allocation found"):
        take_next(((), ()))


def test_list_without_a_container_has_no_recipient() -> None:
    """Three lists of a Pod of one container."""
    with pytest.raises(PendingError, match="list 2 of the allocation belongs to none of the Pod's 1 containers"):
        recipient((shares(1), shares(1), shares(1)), 2, [container(1)])


def test_kubelets_devices_take_the_schedulers_amounts() -> None:
    """Position by position."""
    uuid = "GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8"

    assert (share(uuid),) == chosen_by_kubelet(shares(1), [f"{uuid}-9"])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(
            PreferredRequest(("GPU-1::0", "GPU-0::1", "GPU-0::0"), (), 2), ["GPU-0::1", "GPU-1::0"], id="first"
        ),
        pytest.param(
            PreferredRequest(("GPU-0::0", "GPU-1::0"), ("GPU-1::5",), 2), ["GPU-1::5", "GPU-0::0"], id="must include"
        ),
        pytest.param(PreferredRequest(("GPU-0::0",), (), 2), None, id="no replica left"),
        pytest.param(PreferredRequest(("GPU-0::0",), (), 3), None, id="more than granted"),
    ],
)
def test_preferred_replicas_are_of_the_granted_devices(request_: PreferredRequest, expected: list[str] | None) -> None:
    """Two devices are granted, GPU-0 and GPU-1."""
    assert [expected] == preferred(((), shares(2)), [request_])
