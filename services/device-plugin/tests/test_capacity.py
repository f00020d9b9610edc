"""
Whether a Pod may start by what its Node's devices have.
"""

from typing import Any

import pytest
from device_plugin_builders import RESOURCE, VENDOR

from hami_device_plugin.decide.allocate.capacity import CapacityError, check_capacity, pod_use
from hamicommon.dra.grants import ClaimGrant, GrantedResult
from hamicommon.model import Device, Share
from hamicommon.pod.amounts import Amounts
from hamicommon.pod.reading import Pod, read_pod

DEVICE = Device(id="GPU-a", count=3, memory_mib=10000, core_percent=100, type="NVIDIA T4")
OTHER = Device(id="GPU-b", count=3, memory_mib=10000, core_percent=200, type="NVIDIA T4")
MIG = Device(id="GPU-m", count=1, memory_mib=10, core_percent=100, type="NVIDIA A100", mode="mig")
DEVICES = {device.id: device for device in (DEVICE, OTHER, MIG)}


def granted(name: str, allocated: str, *, asks: str = "1", init: tuple[str, ...] = (), done: bool = False) -> Pod:
    """Return a Pod of the containers *init* (ordinary, or `sidecar`) and one more, each of which asks for *asks*."""
    limits = {"resources": {"limits": {RESOURCE: asks} if asks else {}}}
    inits: list[dict[str, Any]] = [
        {"name": name, **limits, **({"restartPolicy": "Always"} if name == "sidecar" else {})} for name in init
    ]
    ended = [{"name": name, "state": {"terminated": {"exitCode": 0}}} for name in init] if done else []
    item = {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "annotations": {VENDOR.allocated_key: allocated}},
        "spec": {"nodeName": "n1", "initContainers": inits, "containers": [{"name": "main", **limits}]},
        "status": {"phase": "Running", "initContainerStatuses": ended},
    }
    return read_pod(item, (VENDOR,))


def share(memory_mib: int, core_percent: int = 0, uuid: str = "GPU-a") -> str:
    """Return the list of one container with one share."""
    return f"{uuid},NVIDIA,{memory_mib},{core_percent}:;"


def check(pod: Pod, *started: Pod) -> None:
    """Check *pod* beside *started*."""
    check_capacity(pod, started, DEVICES, "n1", VENDOR)


@pytest.mark.parametrize(
    ("wanted", "before"),
    [
        pytest.param(share(4000), [share(6000)], id="all memory"),
        pytest.param(share(1, 40), [share(1, 60)], id="all compute"),
        pytest.param(share(1), [share(1), share(1)], id="all shares"),
        pytest.param(share(1, 100), [], id="a whole device alone"),
        pytest.param(share(1), [share(1, 70), share(1, 30)], id="no compute of its own, which may have come first"),
        pytest.param(share(1, 100, "GPU-b"), [share(1, 100, "GPU-b")], id="oversubscribed compute"),
        pytest.param(share(9000, 0, "GPU-b"), [share(9000)], id="another device"),
        pytest.param(share(9000, 0, "GPU-m"), [share(9000, 0, "GPU-m")], id="mode mig"),
        pytest.param(share(9000, 0, "GPU-x"), [share(9000, 0, "GPU-x")], id="a device that is not offered"),
        pytest.param(share(9000), ["?,"], id="an unreadable grant beside it"),
    ],
)
def test_what_a_device_has_may_start(wanted: str, before: list[str]) -> None:
    """To the last MiB, percent and share."""
    check(granted("p", wanted), *(granted(f"q{number}", text) for number, text in enumerate(before)))


@pytest.mark.parametrize(
    ("wanted", "before", "sentence"),
    [
        pytest.param(share(4001), [share(6000)], "has 10000 MiB of memory, of which 6000 are taken", id="memory"),
        pytest.param(share(1, 41), [share(1, 60)], "has 100 % of compute, of which 60 are taken", id="compute"),
        pytest.param(share(1), [share(1)] * 3, "has 3 shares, of which 3 are taken", id="shares"),
        pytest.param(share(1), [share(1, 100)], "was granted exclusively", id="beside a whole device"),
        pytest.param(share(1, 100), [share(1)], "was granted exclusively", id="a whole device beside"),
        pytest.param(share(10001), [], "of which 0 are taken, and the Pod was granted 10001; no other Pod", id="alone"),
    ],
)
def test_pod_that_starts_later_is_refused_above_capacity(wanted: str, before: list[str], sentence: str) -> None:
    """The sentence names Pod, device, what it has, what is taken, and who started before."""
    started = [granted(f"q{number}", text) for number, text in enumerate(before)]
    with pytest.raises(CapacityError, match=sentence) as refused:
        check(granted("p", wanted), *started)

    assert str(refused.value).startswith("Pod ns/p does not start: device GPU-a ")
    assert all(f"ns/{pod.name}" in str(refused.value) for pod in started)


@pytest.mark.parametrize(("held_mib", "is_refused"), [(6000, False), (6001, True)], ids=["beside", "above"])
def test_prepared_claims_count(held_mib: int, is_refused: bool) -> None:
    """A device that claims had before it was opened to Pods that ask by resources may still be in use by them."""
    result = GrantedResult("gpu", "n1", "hami-gpu-0", "s", Share("GPU-a", "NVIDIA", held_mib, 0), 1)
    pod, prepared = granted("p", share(4000)), [ClaimGrant("ns", "c", "u", (result,))]
    if is_refused:
        with pytest.raises(CapacityError, match=r"6001 are taken.*ResourceClaim ns/c started before"):
            check_capacity(pod, (), DEVICES, "n1", VENDOR, prepared)
    else:
        check_capacity(pod, (), DEVICES, "n1", VENDOR, prepared)


def test_containers_that_never_run_together_are_not_added_up() -> None:
    """As in the scheduler: an ordinary init container runs before the others, a sidecar beside them."""
    lists = share(6000) + share(5000)

    assert {"GPU-a": Amounts(1, 6000, 0)} == pod_use(granted("p", lists, init=("init",)), "n1", VENDOR).amounts
    assert {"GPU-a": Amounts(2, 11000, 0)} == pod_use(granted("p", lists, init=("sidecar",)), "n1", VENDOR).amounts
    done = pod_use(granted("p", share(6000, 100) + share(5000), init=("init",), done=True), "n1", VENDOR)
    assert ({"GPU-a": Amounts(1, 5000, 0)}, frozenset()) == (done.amounts, done.whole)


def test_grant_of_a_pod_that_asks_for_nothing_takes_nothing() -> None:
    """Its author wrote it; the kubelet gives it no device."""
    check(granted("p", share(9000)), granted("q", share(9000), asks=""))
