"""
Shares that ResourceClaims give, on Nodes that share devices by them.
"""

from dataclasses import replace
from typing import Any

import orjson

from hamicommon.dra.names import API_VERSION, DRIVER
from hamicommon.dra.partitions import Partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import MigPlacement, MigProfile
from hamicommon.wire import keys
from kubectl_hami.answer.grants import comparisons
from kubectl_hami.answer.state import state_of
from kubectl_hami.answer.top import namespace_rows, pod_rows
from kubectl_hami.read.collect import collect
from kubectl_hami.read.redaction import redacted
from kubectl_hami.values.cluster import ClusterSnapshot, ClusterState, Device

from .builders import NOW, a_device, a_node, a_pod, a_scrape
from .fakes import FakeSource

UNHEALTHY = a_device(healthy=False)
PROFILE = MigProfile("1g.5gb", 4864, 15, 1, (MigPlacement(0, 1), MigPlacement(1, 1)))
CLAIMS, SLICES = (f"/apis/{API_VERSION}/{kind}" for kind in ("resourceclaims", "resourceslices"))


def a_dra_node(name: str = "n1") -> dict[str, Any]:
    """Return a Node of kind `dra`; its annotation says of every device that it is not healthy."""
    node = a_node(name, UNHEALTHY, **{keys.NODE_KIND: "dra"})
    node["status"]["allocatable"] = {}
    return node


def a_slice(node: str = "n1", *faults: str) -> dict[str, Any]:
    """Return the ResourceSlice of a Node with one device."""
    offered = OfferedDevice(a_device(), Description(minor=0), faults)
    made = encode_pool({"metadata": {"name": node, "uid": "u"}}, [offered], 1)[0]
    return {**made, "metadata": {**made["metadata"], "name": f"slice-{node}"}}


def a_claim(name: str = "c", device: str = "hami-gpu-0") -> dict[str, Any]:
    """Return a claim with 4000 MiB and 30 % of the device of the Node `n1`."""
    consumed = {"memory": "4000Mi", "cores": "30", "replicas": "1"}
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, "consumedCapacity": consumed}
    return {
        "metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "secret"}]}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def a_user(name: str, claim: str = "c") -> dict[str, Any]:
    """Return a running Pod whose container uses a claim."""
    pod = a_pod(name, node="n1", spec={"nodeName": "n1", "resourceClaims": [{"name": "x", "resourceClaimName": claim}]})
    pod["spec"]["containers"] = [{"name": "main", "resources": {"claims": [{"name": "x"}]}}]
    pod["status"]["phase"] = "Running"
    return pod


def snapshot(*pods: dict[str, Any], **more: Any) -> ClusterSnapshot:
    """Return a cluster with a Node of kind `dra`, its slice, and one claim."""
    found = ClusterSnapshot("c", NOW, nodes=(a_dra_node(),), pods=pods, claims=(a_claim(),), slices=(a_slice(),))
    return replace(found, **more)


def device_of(state: ClusterState) -> Device:
    """Return the only device."""
    [node] = state.nodes
    [device] = node.devices
    return device


def test_claim_counts_once_and_is_shown_for_each_of_its_users() -> None:
    """With what the monitor says that each uses."""
    monitors = {"n1": a_scrape({"hami_vgpu_memory_limit_bytes": 4000 << 20})}
    state = state_of(snapshot(a_user("p"), a_user("q"), monitors=monitors))

    device = device_of(state)
    assert ("dra", 1, 4000, 30) == (
        state.nodes[0].kind,
        device.granted_replicas,
        device.granted_memory_mib,
        device.granted_core_percent,
    )
    assert [("p", "c", 4000, 4000), ("q", "c", 4000, None)] == [
        (share.pod, share.claim, share.memory_mib, share.limit_memory_mib) for share in device.shares
    ]
    assert [("default", "p"), ("default", "q")] == [row.name[:2] for row in pod_rows(state)]
    assert ["2"] == [row.name[1] for row in namespace_rows(state)]
    assert () == state.problems


def test_claim_that_no_pod_uses_yet_counts() -> None:
    """So does one whose Pod has ended, until it is deallocated."""
    ended = a_user("p") | {"status": {"phase": "Succeeded"}}

    for pods in ((), (ended,)):
        device = device_of(state_of(snapshot(*pods)))
        assert (4000, ()) == (device.granted_memory_mib, device.shares)


def test_claim_is_in_no_quota_of_amounts() -> None:
    """As the scheduler counts. Its Pod counts as one that holds a share."""
    quota = {"metadata": {"namespace": "default"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}}

    [namespace] = state_of(snapshot(a_user("p"), quotas=(quota,))).namespaces

    assert (1, [0]) == (namespace.pods, [one.held for one in namespace.quotas])


def test_health_of_a_device_is_that_of_its_faults() -> None:
    """The inventory says of every device that it is not healthy."""
    for faults, is_healthy in (("", True), ('{"GPU-a": {"xid": {}}}', False), ('{"GPU-b": {}}', True), ("[", True)):
        node = a_dra_node()
        node["metadata"]["annotations"][keys.DEVICE_FAULTS] = faults
        assert is_healthy == device_of(state_of(snapshot(nodes=(node,)))).is_healthy


def test_claim_with_a_device_that_no_slice_lists_is_a_problem() -> None:
    """The other claims count."""
    state = state_of(snapshot(claims=(a_claim(), a_claim("d", "hami-gpu-7"), {"metadata": {}})))

    assert 4000 == device_of(state).granted_memory_mib
    assert ["ResourceClaim d" in problem or "metadata.namespace" in problem for problem in state.problems] == [True] * 2
    assert "ResourceClaim default/d has device hami-gpu-7 of n1, which no ResourceSlice lists; it is left out" in (
        state.problems
    )


def a_mig_cluster(*pods: dict[str, Any], **more: Any) -> ClusterSnapshot:
    """Return a cluster with a GPU that can be cut into instances, and a claim for two of them."""
    node = a_node("n1", a_device(healthy=False, mode="mig", count=7), **{keys.NODE_KIND: "dra"})
    offered = [Partition(OfferedDevice(a_device(), Description(0)), PROFILE, place, 14) for place in PROFILE.placements]
    slices = [
        item | {"metadata": {"name": f"s{number}"}}
        for number, item in enumerate(encode_pool({"metadata": {"name": "n1", "uid": "u"}}, offered, 1))
    ]
    claim = a_claim()
    claim["status"]["allocation"]["devices"]["results"] = [
        {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": one.name} for one in offered
    ]
    return snapshot(*pods, **{"nodes": (node,), "claims": (claim,), "slices": tuple(slices), **more})


def test_instances_of_a_claim_are_shown_as_those_of_an_annotation() -> None:
    """Both are parts of one GPU, which the container has once, and the instance is the limit."""
    state = state_of(a_mig_cluster(a_user("p")))

    device = device_of(state)
    assert (2, 2 * 4864, 30) == (device.granted_replicas, device.granted_memory_mib, device.granted_core_percent)
    assert [("p", "c", 2 * 4864)] == [(share.pod, share.claim, share.memory_mib) for share in device.shares]
    assert ["its MIG instance is the limit (by ResourceClaim c)"] == [one.why for one in comparisons(state)]
    assert () == state.problems


def test_claims_are_read_only_where_a_node_shares_devices_by_them() -> None:
    """A cluster without such a Node may not have this API."""
    items = {"/api/v1/nodes": [a_dra_node()], "/api/v1/pods": [a_user("p")], CLAIMS: [a_claim()], SLICES: [a_slice()]}
    answers = {path: {"items": found} for path, found in items.items()}
    found = collect(FakeSource(answers))
    without = collect(FakeSource(answers | {"/api/v1/nodes": {"items": [a_node()]}}))

    assert ((a_claim(),), (a_slice(),)) == (found.claims, found.slices)
    assert (None, None) == (without.claims, without.slices)


def test_bundle_keeps_what_a_claim_was_given_and_not_what_was_asked() -> None:
    """Nothing of other drivers' slices."""
    foreign = a_slice() | {"spec": {"driver": "other", "devices": [{"name": "secret"}]}}
    claims = redacted(CLAIMS, b'{"items": [%b]}' % _json(a_claim()))
    slices = redacted(SLICES, b'{"items": [%b, %b]}' % (_json(a_slice()), _json(foreign)))

    assert b"secret" not in claims + slices
    assert b"4000Mi" in claims
    assert b"hami-gpu-0" in slices


def _json(item: dict[str, Any]) -> bytes:
    return orjson.dumps(item)
