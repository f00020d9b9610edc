"""
Which shares a call is about, from the Pods that wait.
"""

import pytest
from device_plugin_builders import RESOURCE, VENDOR, a_pod, share, shares

from hami_device_plugin.decide.allocate.pending import (
    PendingError,
    hint,
    is_pending,
    next_place,
    preferred,
    recipient,
    what_is_left,
    without_next,
)
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hamicommon.model import PodShares, Share
from hamicommon.pod.reading import Pod, read_pod

FREE = ("GPU-a::0", "GPU-a::1", "GPU-b::0", "GPU-b::1", "GPU-c::0")


def waiting(uid: str, allocated: str, *names: str, phase: str = "Pending") -> Pod:
    """Return a Pod bound to n1 whose containers *names* ask for one device each, or `name=count`."""
    item = {
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "annotations": {VENDOR.allocated_key: allocated}},
        "spec": {
            "nodeName": "n1",
            "containers": [
                {"name": name.partition("=")[0], "resources": {"limits": {RESOURCE: name.partition("=")[2] or "1"}}}
                for name in names
            ],
        },
        "status": {"phase": phase},
    }
    return read_pod(item, (VENDOR,))


FIRST_OF_TWO = waiting("first", "GPU-c,NVIDIA,1,1:;GPU-a,NVIDIA,1,1:;", "one", "two")
SECOND = waiting("second", "GPU-b,NVIDIA,1,1:;", "main")
PAIR = waiting("pair", "GPU-b,NVIDIA,1,1:GPU-a,NVIDIA,1,1:;", "main=2")


@pytest.mark.parametrize(
    ("pods", "held", "size", "expected"),
    [
        pytest.param([SECOND, FIRST_OF_TWO], [], 1, ["GPU-b::0"], id="the first that the watch showed"),
        pytest.param([FIRST_OF_TWO, SECOND], [("first", "one")], 1, ["GPU-a::0"], id="the next container"),
        pytest.param([SECOND, FIRST_OF_TWO], [("first", "one")], 1, ["GPU-a::0"], id="a Pod that has begun"),
        pytest.param([FIRST_OF_TWO, SECOND], [("first", "one"), ("first", "two")], 1, ["GPU-b::0"], id="the next Pod"),
        pytest.param([SECOND, PAIR], [], 2, ["GPU-b::0", "GPU-a::0"], id="another size"),
        pytest.param([FIRST_OF_TWO], [("first", "one"), ("first", "two")], 1, None, id="all have devices"),
        pytest.param([waiting("done", "GPU-b,NVIDIA,1,1:;", "main", phase="Running")], [], 1, None, id="it runs"),
        pytest.param([waiting("bad", "GPU-b,NVIDIA;", "main"), SECOND], [], 1, ["GPU-b::0"], id="an unreadable grant"),
        pytest.param([], [], 1, None, id="no Pod"),
    ],
)
def test_hint_is_about_the_container_that_the_kubelet_serves_next(
    pods: list[Pod], held: list[tuple[str, str]], size: int, expected: list[str] | None
) -> None:
    """Its checkpoint says which have devices; it admits one Pod after another, and serves containers in order."""
    assert [expected] == hint(pods, "n1", VENDOR, held, [PreferredRequest(FREE, (), size)])


def test_hints_of_one_call_are_about_several_containers() -> None:
    """A kubelet asks for one at a time; the interface has more."""
    request = PreferredRequest(FREE, (), 1)

    assert [["GPU-c::0"], ["GPU-a::0"]] == hint([FIRST_OF_TWO], "n1", VENDOR, [], [request, request])


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


GRANT = ((), (share("GPU-a"), share("GPU-b")), (share("GPU-a", 2000),))


@pytest.mark.parametrize(
    ("left", "served", "place"),
    [
        pytest.param(GRANT, 0, 1, id="nothing served"),
        pytest.param(((), (), GRANT[2], ()), 1, 2, id="one served"),
        pytest.param(((), (), GRANT[2]), None, 2, id="unknown how many are served"),
        pytest.param(GRANT[1:], 0, 1, id="without empty lists"),
    ],
)
def test_next_container_gets_its_entry_in_the_grant(left: PodShares, served: int | None, place: int) -> None:
    """What is left says how many have their devices, or agrees with the kubelet about it."""
    assert (left, True) == what_is_left(GRANT, left, served)
    assert place == next_place(GRANT, left)


FORGED = [
    pytest.param(((share("GPU-c"), share("GPU-b")), GRANT[2]), 0, id="another device"),
    pytest.param(((share("GPU-a"), share("GPU-b", 40000)), GRANT[2]), 0, id="more memory"),
    pytest.param(((share("GPU-a"), Share("GPU-b", "NVIDIA", 1000, 100)), GRANT[2]), 0, id="more of the compute"),
    pytest.param(((share("GPU-b"), share("GPU-a")), GRANT[2]), 0, id="another order of devices"),
    pytest.param((GRANT[2], GRANT[1]), 0, id="another order of containers"),
    pytest.param((GRANT[1], GRANT[2], GRANT[2]), 0, id="one container more"),
    pytest.param((GRANT[1],), 1, id="the entry of another container"),
]


@pytest.mark.parametrize(
    ("left", "served"),
    [
        *FORGED,
        pytest.param((GRANT[2],), 0, id="a container is passed over"),
        pytest.param(GRANT, 1, id="an entry that was handed out"),
        pytest.param((), 0, id="emptied before any container was served"),
        pytest.param(None, 1, id="unreadable"),
    ],
)
def test_grant_counts_whatever_the_annotation_says_is_left(left: PodShares | None, served: int) -> None:
    """Anyone who may change the Pod may have written it; the kubelet knows how many containers have devices."""
    rest, agrees = what_is_left(GRANT, left, served)

    assert (1 + served, False) == (next_place(GRANT, rest), agrees)
    assert GRANT[1 + served :] == rest[1 + served :]


@pytest.mark.parametrize("left", [pytest.param(case.values[0], id=case.id) for case in FORGED])
def test_nothing_is_served_if_neither_kubelet_nor_annotation_says_who_is_next(left: PodShares) -> None:
    """After a restart beside a checkpoint that cannot be read."""
    with pytest.raises(PendingError, match="that is not what is left of its grant"):
        what_is_left(GRANT, left, None)


def test_served_container_leaves_an_empty_place() -> None:
    """Every container has its devices once nothing is left."""
    left = without_next(((), shares(2), shares(1)))

    assert ((), (), shares(1)) == left
    with pytest.raises(PendingError, match="every container has its devices already"):
        next_place(GRANT, without_next(left))


def test_list_without_a_container_has_no_recipient() -> None:
    """Three lists of a Pod of one container."""
    with pytest.raises(PendingError, match="list 2 of the allocation belongs to none of the Pod's 1 containers"):
        recipient(a_pod(), (shares(1), shares(1), shares(1)), 2, VENDOR)


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
