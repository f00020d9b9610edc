"""What the judge of a history finds of ResourceClaims, whose results name devices of ResourceSlices."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from bench.load.simulation import REGISTER, a_dra_node, slices_of
from hamicommon.dra.names import CORES, DRIVER, MEMORY
from hamicommon.model import Object
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from harness.history.events import CLAIM, NODE, SLICE, Change
from harness.history.findings import Rule
from harness.history.judge import LOST_SECONDS
from harness_tests.test_judge import History, a_pod, only, share

FOR_CLAIMS = "hami-gpu-0"
"""The device of the Node that is for claims. The other one is for Pods that ask by resources."""


@dataclass
class Claims(History):
    """A history with a Node `d` of kind `dra` with two devices: 10 replicas, 81559 MiB and 100 % each."""

    def __post_init__(self) -> None:
        super().__post_init__()
        made = a_dra_node("d", 2, {0})
        is_ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        self.dra_node: Object = {
            **made,
            "metadata": {**made["metadata"], "uid": "u"},
            "status": {**made["status"], **is_ready},
        }
        self.uuids = [device.id for device in decode_node_devices(self.dra_node["metadata"]["annotations"][REGISTER])]
        self.add(Change.ADDED, NODE, self.dra_node)
        for number, item in enumerate(slices_of(self.dra_node)):
            self.add(Change.ADDED, SLICE, {**item, "metadata": {**item["metadata"], "name": f"d-{number}"}})

    def open_all_to_pods(self) -> None:
        """Write a version of the Node that offers every device to Pods that ask by resources."""
        metadata = self.dra_node["metadata"]
        devices = decode_node_devices(metadata["annotations"][REGISTER])
        opened = {REGISTER: encode_node_devices([replace(device, healthy=True) for device in devices])}
        self.add(Change.MODIFIED, NODE, {**self.dra_node, "metadata": {**metadata, "annotations": opened}})

    def claim(self, name: str, *results: Object, change: Change = Change.MODIFIED) -> int:
        """Write a version of a claim with an allocation, if it has *results*."""
        status = {"allocation": {"devices": {"results": list(results)}}} if results else {}
        return self.add(change, CLAIM, {"metadata": {"namespace": "d", "name": name, "uid": name}, "status": status})


def a_result(memory_mib: int, core_percent: int = 10, device: str = FOR_CLAIMS, **more: Any) -> Object:
    """Return a result of the driver on the Node `d`."""
    consumed = {MEMORY: f"{memory_mib}Mi", CORES: str(core_percent)}
    return {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "d",
        "device": device,
        "consumedCapacity": consumed,
        **more,
    }


def test_claims_that_fill_a_device_one_after_the_other_pass() -> None:
    """A claim that is deallocated or gone holds nothing, and a token or an administrator's access never does."""
    history = Claims()
    history.claim("a", a_result(50000, 50))
    history.claim("b", a_result(31559, 50))
    history.claim("a")
    history.claim("c", a_result(50000, 50))
    history.claim("b", a_result(31559, 50), change=Change.DELETED)
    history.claim("d", a_result(31559, 50))
    history.claim("watching", a_result(80000, 100, adminAccess=True))
    token = {"request": "container-0-request-0", "driver": DRIVER, "pool": "d", "device": "hami-token-0"}
    history.claim("by-resources", token)
    history.pod(a_pod("p", share(81559, 10, history.uuids[1]), node="d"))

    assert [] == history.judged()


@pytest.mark.parametrize(
    ("more", "rule"), [((40000, 10), Rule.MEMORY), ((1000, 60), Rule.CORES)], ids=["memory", "cores"]
)
def test_claims_beyond_a_device_are_found(more: tuple[int, int], rule: Rule) -> None:
    """The finding names the claims."""
    history = Claims()
    history.claim("a", a_result(50000, 50))
    version = history.claim("b", a_result(*more))

    text = only(history.judged(), rule, version)
    assert "ResourceClaim d/a" in text
    assert "ResourceClaim d/b" in text


def test_more_claims_than_replicas_are_found() -> None:
    """A share without a `replicas` amount is one."""
    history = Claims()
    versions = [history.claim(f"c{number}", a_result(10, 1)) for number in range(11)]

    assert "11 shares of 10" in only(history.judged(), Rule.COUNT, versions[-1])


def test_claim_beside_a_pod_that_holds_the_device_is_found() -> None:
    """Such as one that ran before the device was kept for claims. Both are summed up."""
    history = Claims()
    history.open_all_to_pods()
    history.pod(a_pod("before", share(50000, 10, history.uuids[0]), node="d"))
    history.add(Change.MODIFIED, NODE, history.dra_node)
    version = history.claim("a", a_result(50000))

    assert "100000 MiB of 81559" in only(history.judged(), Rule.MEMORY, version)


def test_device_that_pods_and_claims_can_get_is_found() -> None:
    """The inventory offers the device to Pods that ask by resources, and a claim holds it."""
    history = Claims()
    history.open_all_to_pods()
    history.wait(60)
    version = history.claim("a", a_result(1000))

    assert history.uuids[0] in only(history.judged(), Rule.SIDES, version)


def test_device_that_no_slice_lists_is_found() -> None:
    """Once, and the other devices of the claim count."""
    history = Claims()
    version = history.claim("a", a_result(1000, device="hami-gpu-7"), a_result(1000))
    history.claim("a", a_result(1000, device="hami-gpu-7"), a_result(1000))

    assert "hami-gpu-7" in only(history.judged(), Rule.READABLE, version)


def test_claim_keeps_what_it_holds_while_its_slice_is_gone() -> None:
    """The kubelet deletes slices when it starts, and their claims stay."""
    history = Claims()
    history.claim("a", a_result(50000, 50))
    for number, item in enumerate(slices_of(history.dra_node)):
        history.add(Change.DELETED, SLICE, {**item, "metadata": {**item["metadata"], "name": f"d-{number}"}})
    version = history.claim("b", a_result(50000, 50))

    only(history.judged(), Rule.MEMORY, version)


@pytest.mark.parametrize(("size", "is_lost"), [(60000, True), (90000, False)], ids=["fits", "does not fit"])
def test_pod_that_waits_although_tokens_and_a_device_are_free_is_found(size: int, is_lost: bool) -> None:
    """No other Node has that much memory, and the kubelet of this one lists no replicas."""
    history = Claims()
    history.pod(a_pod("p", None, {"gpu": 1, "gpumem": size, "gpucores": 10}))
    history.wait(LOST_SECONDS + 10)
    history.wait(10)

    assert is_lost == any(finding.rule is Rule.LOST for finding in history.judged())


def test_pod_that_names_a_claim_may_wait_for_tokens() -> None:
    """After a failed bind its name stays, and a Node with a device plugin would not prepare such a claim."""
    history = Claims()
    history.pod(a_pod("holder", share(81559, 100, history.uuids[1]), node="d"))
    history.pod(a_pod("p", None, extendedResourceClaimStatus={"resourceClaimName": "p-extended-resources-x"}))
    history.wait(LOST_SECONDS + 10)
    history.wait(10)

    assert [] == history.judged()
