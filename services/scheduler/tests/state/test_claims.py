"""What ResourceClaims hold is counted from claims, slices and Nodes as they are, in whatever order they arrive."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.explain import wording
from hami_scheduler.rules.mig import mig_state
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.preempt import must_leave
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import above_capacity
from hami_scheduler.values.inventory import Problem
from hamicommon.dra.names import DRIVER
from hamicommon.dra.partitions import Partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import MigPlacement, MigProfile, Object

from ..support.builders import (
    QUOTA,
    a_cluster,
    a_device,
    a_mig_device,
    a_node,
    a_pod,
    a_request,
    promises,
    vendors,
)
from ..support.hypothesis_profiles import profile

CLAIM_NODE = "hami_io__node_kind"


def a_claim_node(name: str = "n1", kind: str = "dra") -> Object:
    """Return a Node that gives its devices by ResourceClaims, and lists them for the Pods from before."""
    return a_node(name, a_device(f"GPU-{name}-0", healthy=False), replicas=0, **{CLAIM_NODE: kind})


def a_slice(node: str = "n1", *, devices: int = 2, generation: int = 1, **pool: Any) -> Object:
    """Return the slice of *node*, whose devices have the UUIDs `GPU-<node>-<n>`."""
    offered = [OfferedDevice(a_device(f"GPU-{node}-{n}", memory_mib=40960), Description(n)) for n in range(devices)]
    found = encode_pool({"metadata": {"name": node, "uid": node}}, offered, generation)[0]
    found["metadata"]["name"] = f"{node}-{generation}"
    found["spec"]["pool"] |= pool
    return found


def a_result(device: int | str = 0, pool: object = "n1", **changes: Any) -> Object:
    """Return one result: a share of 1 GiB and 30 percent of the device with a number or a name."""
    name = device if isinstance(device, str) else f"hami-gpu-{device}"
    consumed = {"memory": "1Gi", "cores": "30", "replicas": "1"}
    found = {"request": "gpu", "driver": DRIVER, "pool": pool, "device": name, "shareID": "s"}
    return found | {"consumedCapacity": consumed} | changes


def a_claim(name: str = "c", *results: Object, pods: int = 1) -> Object:
    """Return a claim that is allocated to *results*, or is not without any."""
    allocation = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    reserved = [{"resource": "pods", "name": f"p{n}", "uid": f"pod-{n}"} for n in range(pods)]
    metadata = {"namespace": "default", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "status": {**allocation, "reservedFor": reserved}}


def with_claims(*claims: Object, slices: tuple[Object, ...] = (), nodes: tuple[Object, ...] = ()) -> Cluster:
    """Return a cluster with *claims*, with the slice and the Node n1 by default."""
    cluster = a_cluster(*(nodes or (a_claim_node(),)))
    cluster.claims.replace_slices(list(slices or (a_slice(),)))
    cluster.claims.replace_claims(list(claims))
    return cluster


def test_allocated_results_take_from_their_devices_once_however_many_pods_share_the_claim() -> None:
    """Several results of one device add up."""
    cluster = with_claims(a_claim("c", a_result(), a_result(), a_result(1), pods=3))

    assert {"GPU-n1-0": [2, 2048, 60], "GPU-n1-1": [1, 1024, 30]} == promises(cluster, "n1")


def test_result_without_amounts_takes_the_whole_device() -> None:
    """A device that is not shared."""
    cluster = with_claims(a_claim("c", a_result(consumedCapacity=None)))

    assert {"GPU-n1-0": [10, 40960, 100]} == promises(cluster, "n1")


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(a_claim("c", a_result(adminAccess=True)), id="access for an administrator"),
        pytest.param(a_claim("c", a_result(driver="gpu.nvidia.com")), id="another driver"),
        pytest.param(a_claim("c"), id="not allocated"),
    ],
)
def test_what_takes_no_share_counts_nothing(claim: Object) -> None:
    """And is no device that nobody knows."""
    cluster = with_claims(claim)

    assert ({}, 0) == (promises(cluster, "n1"), cluster.claims.unknown_devices)


def test_claim_that_is_deallocated_or_deleted_frees() -> None:
    """Nothing of it is left in the ledger."""
    cluster = with_claims(a_claim("c", a_result()), a_claim("d", a_result(1)))

    cluster.claims.put_claim(a_claim("c"))
    cluster.claims.drop_claim(a_claim("d", a_result(1)))

    assert ({}, []) == (promises(cluster, "n1"), list(cluster.ledger.grants()))


def test_bad_result_is_reported_once_and_hides_no_good_one() -> None:
    """The claim arrives again with each change of it."""
    reported: list[tuple[str, str, str]] = []
    cluster = Cluster(vendors(), lambda kind, name, problem: reported.append((kind, name, problem.reason)))
    cluster.put_node(a_claim_node())
    cluster.claims.replace_slices([a_slice()])
    for _ in range(2):
        cluster.claims.put_claim(a_claim("c", a_result(pool=7), a_result()))

    assert {"GPU-n1-0": [1, 1024, 30]} == promises(cluster, "n1")
    [(kind, name, reason)] = reported
    assert ("ResourceClaim", "default/c") == (kind, name)
    assert "results[0].pool: '7' is not a text" in reason


def test_device_without_a_slice_is_reported_only_once_both_collections_are_listed() -> None:
    """Claims may arrive before their slice, which is no problem."""
    reported: list[Problem] = []
    cluster = Cluster(vendors(), lambda _kind, _name, problem: reported.append(problem))
    cluster.put_node(a_claim_node())

    cluster.claims.replace_claims([a_claim("c", a_result(7))])
    assert ([], 0) == (reported, cluster.claims.unknown_devices)
    cluster.claims.replace_slices([a_slice()])
    cluster.claims.put_claim(a_claim("c", a_result(7)))
    assert ["names hami-gpu-7 of pool n1, which no ResourceSlice lists; it does not count"] == [
        problem.reason for problem in reported
    ]
    assert 1 == cluster.claims.unknown_devices

    cluster.claims.put_slice(a_slice(devices=8, generation=2))
    assert ({"GPU-n1-7": [1, 1024, 30]}, 0) == (promises(cluster, "n1"), cluster.claims.unknown_devices)


def a_mig_slices(node: str = "n1", start: int = 0) -> tuple[Object, ...]:
    """Return the slices of *node*, whose one GPU `GPU-<node>-0` can be cut into instances of 10 GiB and 15 percent."""
    gpu = OfferedDevice(a_device(f"GPU-{node}-0", memory_mib=81920), Description(0))
    profile = MigProfile("1g.10gb", 9728, 15, 1, (MigPlacement(start, 1), MigPlacement(start + 1, 1)))
    offered = [Partition(gpu, profile, place, 14) for place in profile.placements]
    found = encode_pool({"metadata": {"name": node, "uid": node}}, offered, 1)
    return tuple(item | {"metadata": {"name": f"{node}-{number}"}} for number, item in enumerate(found))


def test_mig_instance_counts_on_its_gpu_as_one_of_an_annotation_does() -> None:
    """It is one share with the memory and compute of its profile, of a device that the Node's annotation lists."""
    results = [a_result(consumedCapacity=None, device=f"hami-mig-0-1g-{start}") for start in (0, 1)]
    reported: list[Problem] = []
    cluster = Cluster(vendors(), lambda _kind, _name, problem: reported.append(problem))
    cluster.put_node(a_claim_node())
    cluster.claims.replace_slices(list(a_mig_slices()))
    cluster.claims.replace_claims([a_claim("c", *results)])

    assert {"GPU-n1-0": [2, 2 * 9728, 30]} == promises(cluster, "n1")
    assert ([], 0) == (reported, cluster.claims.unknown_devices)
    entry = cluster.ledger.node("n1")
    assert entry is not None
    assert [10] == [device.count for device in entry.inventory.devices]


def test_place_of_a_claims_instance_is_taken_on_a_node_that_has_a_device_plugin_again() -> None:
    """The instance still stands there, and the next one goes beside it."""
    claim = a_claim("c", a_result(device="hami-mig-0-1g-6", consumedCapacity=None))
    gpu = a_mig_device("GPU-n1-0")
    cluster = with_claims(claim, slices=a_mig_slices(start=6), nodes=(a_node("n1", gpu),))

    [grant] = cluster.ledger.grants_on("n1")
    assert [MigPlacement(6, 1)] == mig_state([gpu], [grant]).occupied["GPU-n1-0"]
    assert set() == mig_state([gpu], [grant]).incomplete


def test_devices_for_claims_are_closed_to_pods_that_ask_by_resources() -> None:
    """kube-scheduler gives them, and would not see such a Pod's share."""
    cluster = with_claims()

    assert {"n1": "node gives devices by ResourceClaims"} == filter_nodes(
        a_request(), ["n1"], cluster.view
    ).refusal.failed_nodes


def test_share_of_a_claim_is_missing_from_a_node_that_has_a_device_plugin_again() -> None:
    """The claim's Pod still runs there, whatever the Node is now."""
    cluster = with_claims(a_claim("c", a_result(consumedCapacity=None)))

    cluster.put_node(a_node("n1", a_device("GPU-n1-0", memory_mib=40960)))

    assert {"n1": "1/1 CardTimeSlicingExhausted"} == filter_nodes(
        a_request(), ["n1"], cluster.view
    ).refusal.failed_nodes


def test_claim_survives_lists_of_pods_and_is_in_no_quota_and_no_reservation() -> None:
    """It has no Pod."""
    cluster = with_claims(a_claim("c", a_result()))
    cluster.quotas.put(QUOTA)

    cluster.replace_pods([], 0.0)
    cluster.expire(1e9)

    assert {"GPU-n1-0": [1, 1024, 30]} == promises(cluster, "n1")
    assert (0, [0], 0) == (cluster.recount(), [use.used for use in cluster.quotas.uses()], len(cluster.reservations))


def test_claim_is_never_evicted_for_a_pod() -> None:
    """Only Pods can be evicted, and the Pods of a claim are not known to hold it alone."""
    node = a_node("n1", a_device("GPU-n1-0", memory_mib=40960))
    cluster = with_claims(a_claim("c", a_result(consumedCapacity=None)), nodes=(node,))

    assert None is must_leave(a_request(), 100, "n1", (), cluster.view)


def test_new_device_config_counts_each_claim_once() -> None:
    """Claims are listed again for it, and one that ended meanwhile is not taken over."""
    old = with_claims(a_claim("c", a_result()), a_claim("ended", a_result()))
    fresh = with_claims(a_claim("c", a_result()))

    fresh.take_over(old, 0.0)

    assert ({"GPU-n1-0": [1, 1024, 30]}, 0) == (promises(fresh, "n1"), len(fresh.reservations))


def test_device_above_its_capacity_names_the_claim() -> None:
    """Beside the Pods that hold it."""
    pod = a_pod("p", node="n1", allocated="GPU-n1-0,NVIDIA,40960,0:;")
    cluster = with_claims(a_claim("c", a_result()))
    cluster.put_pod(pod)

    [excess] = above_capacity(cluster.ledger, cluster.vendors)

    assert ("ResourceClaim default/c", "default/p") == excess.holders
    assert wording.above(excess).endswith("to ResourceClaim default/c, default/p")


NAMES = st.sampled_from(["n1", "n2"])
RESULTS = st.builds(a_result, st.integers(0, 3), NAMES, adminAccess=st.booleans())
CLAIMS = st.builds(
    lambda name, results: ("claim", a_claim(name, *results)), st.sampled_from("abc"), st.lists(RESULTS, max_size=3)
)
SLICES = st.builds(
    lambda node, devices, generation, count: (
        "slice",
        a_slice(node, devices=devices, generation=generation, resourceSliceCount=count),
    ),
    NAMES,
    st.integers(0, 4),
    st.integers(1, 3),
    st.sampled_from([1, 1, 1, 2]),
)
NODES = st.builds(lambda name, kind: ("node", a_claim_node(name, kind)), NAMES, st.sampled_from(["dra", "plugin"]))
EVENTS = st.lists(st.tuples(st.booleans(), CLAIMS | SLICES | NODES), max_size=25)


@pytest.mark.property
@profile(100)
@given(EVENTS)
def test_any_history_of_claims_slices_and_nodes_gives_the_sums_of_a_fresh_build(events: list[Any]) -> None:
    """So a scheduler that was killed, or takes over, counts the same."""
    live = a_cluster()
    live.claims.replace_claims([])
    live.claims.replace_slices([])
    now: dict[tuple[str, str], Object] = {}
    for is_gone, (kind, item) in events:
        put, drop = {
            "claim": (live.claims.put_claim, live.claims.drop_claim),
            "slice": (live.claims.put_slice, live.claims.drop_slice),
            "node": (live.put_node, live.drop_node),
        }[kind]
        key = (kind, item["metadata"]["name"])
        if is_gone:
            now.pop(key, None)
            drop(copy.deepcopy(item))
        else:
            now[key] = item
            put(copy.deepcopy(item))
    fresh = a_cluster(*(item for (kind, _), item in now.items() if kind == "node"))
    fresh.claims.replace_claims([item for (kind, _), item in now.items() if kind == "claim"])
    fresh.claims.replace_slices([item for (kind, _), item in now.items() if kind == "slice"])

    assert (0, 0) == (live.recount(), fresh.recount())
    assert fresh.claims.unknown_devices == live.claims.unknown_devices
    for name in ("n1", "n2"):
        assert promises(fresh, name) == promises(live, name)
