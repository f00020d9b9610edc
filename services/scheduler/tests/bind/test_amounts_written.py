"""What is granted can be written, and what is written is read back as what was granted, of every vendor."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hami_scheduler.bind.plan import plan_bind
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement, grant_of
from hami_scheduler.values.grant import read_grant
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.request import read_request
from hami_scheduler.values.vendor import VendorRules
from hamicommon.vendors import enflame, metax
from hamicommon.wire.pod_devices import decode_pod_devices
from hamicommon.wire.quantity import INT32_MAX

from ..support.builders import a_cluster, a_device, a_register, vendors
from ..support.hypothesis_profiles import profile

Amounts = tuple[int, int, int]
VENDOR_RULES = {rules.key: rules for rules in vendors()}
LARGE = st.sampled_from([1, 2, 100, 16384, INT32_MAX, 99_999_999_999]) | st.integers(1, 10**15)


def registered(rules: VendorRules, amounts: Amounts) -> str:
    """Return the register annotation of one device of *rules* with replicas, MiB and cores of *amounts*."""
    count, memory_mib, cores = (min(amount, INT32_MAX) for amount in amounts)
    if rules.vendor.register_key == metax.SGPU_REGISTER_KEY:
        device = {"uuid": "d", "totalDevCount": count, "totalVRam": memory_mib, "totalCompute": cores, "healthy": True}
        return json.dumps([device])
    if rules.vendor.register_key == enflame.DRS_REGISTER_KEY:
        device = {"index": "0", "minor": "0", "capacity": count}
        return json.dumps({"devices": [device], "profiles": {"1g.1gb": "0", f"2g.{amounts[1]}gb": "1"}})
    fields: dict[str, Any] = {"count": count, "memory_mib": memory_mib, "core_percent": cores, "mode": ""}
    return a_register(a_device("d", type=rules.key, **fields))


def a_node(rules: VendorRules, amounts: Amounts) -> dict[str, Any]:
    """Return a Node that offers *amounts* of the resources of *rules*, or one device with them."""
    names = rules.vendor.resource_names
    offered = dict(zip(names, map(str, amounts), strict=False))
    annotations = {rules.vendor.register_key: registered(rules, amounts)} if rules.vendor.register_key else {}
    status = {"capacity": offered, "allocatable": offered}
    return {"metadata": {"name": "n1", "annotations": annotations}, "status": status}


def bound(rules: VendorRules, amounts: Amounts, asked: dict[str, str]) -> tuple[Any, dict[str, Any]] | None:
    """Return what a Pod that asks for *asked* is granted on such a Node and the Pod with it, None where it fits not."""
    ledger = a_cluster(a_node(rules, amounts)).ledger
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u", "annotations": {}},
        "spec": {"containers": [{"name": "c", "resources": {"limits": asked}}]},
        "status": {},
    }
    request, entry = read_request(pod, vendors(), Policies()), ledger.node("n1")
    found = try_node(request, "n1", ledger, {}) if entry and request.asks_for_devices else None
    if entry is None or not isinstance(found, Placement):
        return None
    grant = grant_of(request, entry.inventory, found, 1)
    pod["metadata"]["annotations"] = plan_bind(grant, vendors(), 1).annotations
    pod["spec"]["nodeName"] = "n1"
    return grant, pod


@pytest.mark.property
@pytest.mark.parametrize("key", VENDOR_RULES)
@profile(40)
@given(amounts=st.tuples(LARGE, LARGE, LARGE), asked=st.lists(st.none() | LARGE, min_size=2, max_size=2))
@example(amounts=(1, 99_999_999_999, 100), asked=[None, None])
@example(amounts=(INT32_MAX, INT32_MAX, INT32_MAX), asked=[INT32_MAX, INT32_MAX])
def test_grant_is_read_back_after_a_restart(key: str, amounts: Amounts, asked: list[int | None]) -> None:
    """No Node offers more than a Pod's annotation can say, so no share is forgotten and granted twice."""
    rules = VENDOR_RULES[key]
    count, *rest = rules.vendor.resource_names
    limits = {count: "1", **{name: str(amount) for name, amount in zip(rest, asked, strict=False) if amount}}
    found = bound(rules, amounts, limits)
    if found is None:
        return
    grant, pod = found

    again = read_grant(pod, vendors())
    assert again is not None
    assert (grant.shares[key], grant.amounts) == (again.shares[key], again.amounts)
    shares = [share for container in grant.shares[key] for share in container]
    assert shares == [
        s for c in decode_pod_devices(pod["metadata"]["annotations"][rules.vendor.allocated_key]) for s in c
    ]
    assert all(0 <= amount <= INT32_MAX for share in shares for amount in (share.memory_mib, share.core_percent))


def test_share_of_a_node_that_offers_more_than_32_bits_is_all_that_can_be_written() -> None:
    """Cambricon's capacity is a count of 256 MiB, without a limit of its own."""
    rules = VENDOR_RULES["MLU"]
    count, memory, cores = rules.vendor.resource_names
    node = a_node(rules, (1, 0, 0))
    node["status"]["allocatable"] = node["status"]["capacity"] = {count: "1", memory: "99999999999", cores: "100"}
    inventory = a_cluster(node).ledger.node("n1")

    assert inventory is not None
    assert [INT32_MAX] == [device.memory_mib for device in inventory.inventory.devices]
