"""What is a vendor's own: the arithmetic of templates, modules, zones, wings, masks and profiles, and their laws."""

import json
import re
from itertools import combinations
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from hami_scheduler.bind.plan import plan_bind
from hami_scheduler.explain.planning import simulate
from hami_scheduler.explain.remedies import as_new
from hami_scheduler.explain.report import finish
from hami_scheduler.explain.wording import describe
from hami_scheduler.rules import vendors as own_vendors
from hami_scheduler.rules.vendor_parts import DEVICES_PER_NODE, largest_groups_first
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import grant_of
from hami_scheduler.serve.listen.metrics import ClusterCollector, Observed
from hami_scheduler.state.ledger import Ledger, shortfall
from hami_scheduler.values.attempt import Attempt, ShareOption
from hami_scheduler.values.constraints import Constraints
from hami_scheduler.values.device_use import DeviceUse, PodOnDevice
from hami_scheduler.values.grant import read_grant
from hami_scheduler.values.inventory import read_inventory
from hami_scheduler.values.policies import Policies, read_device_policy
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.request import read_request
from hami_scheduler.values.vendor import NodeView, VendorRules
from hamicommon.config.device_config import load_device_config
from hamicommon.model import Device, Request, Share
from hamicommon.vendors import descriptions

from ..support.builders import VECTORS, a_cluster, only_devices, vendors
from ..support.hypothesis_profiles import profile

VENDOR_RULES = {rules.key: rules for rules in vendors()}
MODULES = VENDOR_RULES["Ascend910C"]
SGPU = VENDOR_RULES["Metax-SGPU"]
KUNLUN = VENDOR_RULES["kunlun"]
NEURON = VENDOR_RULES["AWSNeuron"]

INDEXES = st.sets(st.integers(0, 15), min_size=1)


def a_use(index: int, vendor: str = "X", *, used: bool = False, **fields: Any) -> DeviceUse:
    """Return the device of *index*, called by its number."""
    defaults = {"count": 10, "memory_mib": 1000, "core_percent": 100, "type": vendor, "vendor": vendor}
    return DeviceUse(Device(**{"id": str(index), "index": index, **defaults, **fields}), replicas=int(used))


def an_attempt(
    rules: VendorRules, count: int, uses: list[DeviceUse], core_percent: int = 0, **constraints: Any
) -> Attempt:
    """Return a container's request for *count* devices of *uses*."""
    return Attempt(Request(rules.key, count, 0, 100, core_percent), Constraints(**constraints), uses)


def choose(rules: VendorRules, attempt: Attempt) -> list[int] | Misfit | None:
    """Return the indexes of the devices that *rules* chooses of idle ones, last first as they are tried."""
    assert rules.fit.choose is not None
    chooser = rules.fit.choose(attempt)
    options = [
        ShareOption(use, Share(use.device.id, rules.key, 0, 0))
        for use in reversed(attempt.candidates)
        if not use.replicas
    ]
    if chooser is None:
        return [option.use.device.index for option in options[: attempt.request.count]]
    found = chooser(attempt, options, {})
    return found if found is None or isinstance(found, Misfit) else [option.use.device.index for option in found]


def node_of(vendor: str, name: str = "n1", **capacity: int) -> dict[str, Any]:
    """Return a Node with *capacity* of resources of the domain *vendor*, `__` standing for `.` and `_` for `-`."""
    amounts = {f"{vendor}/{key.replace('__', '.').replace('_', '-')}": str(n) for key, n in capacity.items()}
    return {"metadata": {"name": name, "annotations": {}}, "status": {"capacity": amounts, "allocatable": amounts}}


def pod_of(name: str, *limits: dict[str, str], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Pod of one container per entry of *limits*."""
    containers = [{"name": f"c{place}", "resources": {"limits": found}} for place, found in enumerate(limits)]
    metadata = {"name": name, "namespace": "default", "uid": name, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": {"containers": containers}, "status": {"phase": "Pending"}}


def bound_to(pod: dict[str, Any], ledger: Ledger, node: str = "n1") -> dict[str, Any] | Misfit:
    """Return *pod* bound to *node* with what it gets there, after *ledger* has counted it, or why it is not."""
    request = read_request(pod, vendors(), Policies())
    entry = ledger.node(node)
    assert entry is not None
    found = try_node(request, node, ledger, {})
    if isinstance(found, Misfit):
        return found
    grant = grant_of(request, entry.inventory, found, 10**18)
    ledger.put(grant)
    assert {} == shortfall(ledger, grant, vendors())
    pod["metadata"]["annotations"].update(plan_bind(grant, vendors(), 1).annotations)
    pod["spec"]["nodeName"] = node
    return pod


# Ascend


@pytest.mark.property
@profile(100)
@given(INDEXES, st.integers(2, 16))
def test_modules_are_taken_whole_or_not_at_all(free: set[int], count: int) -> None:
    """A 910C has two devices; a Pod gets both of a module, and is refused exactly where too few modules are free."""
    found = choose(MODULES, an_attempt(MODULES, count, [a_use(index) for index in sorted(free)]))
    whole = {index for index in free if index ^ 1 in free}

    if len(whole) >= count and count % 2 == 0:
        assert isinstance(found, list)
        assert count == len(set(found))
        assert set(found) <= whole
        assert {index ^ 1 for index in found} == set(found)
    else:
        assert isinstance(found, Misfit)
        assert count == found.device_count


def test_share_without_template_needs_a_node_that_can() -> None:
    """The Node's own word counts before the configuration; such a share has 100 % of a device to take from."""
    register = json.dumps(
        [{"id": "NPU-a", "count": 9, "devmem": 65536, "devcore": 20, "type": "Ascend910B3", "health": True}]
    )
    node = node_of("huawei.com", Ascend910B3=9)
    node["metadata"]["annotations"] = {"hami.io/node-register-Ascend910B3": register}
    asks = {"huawei.com/Ascend910B3": "1", "huawei.com/Ascend910B3-memory": "1000", "huawei.com/Ascend910B3-core": "60"}
    shared = {"huawei.com/vnpu-mode": "hami-core"}

    refused = bound_to(pod_of("a", asks, annotations=dict(shared)), a_cluster(node).ledger)
    node["metadata"]["annotations"]["hami-vnpu-core"] = "true"
    ledger = a_cluster(node).ledger
    bound = bound_to(pod_of("b", asks, annotations=dict(shared)), ledger)

    assert isinstance(refused, Misfit)
    assert "1/1 ModeNotFit" == refused.text
    assert isinstance(bound, dict)
    assert '[{"UUID":"NPU-a","memory":1000,"core":60}]' == bound["metadata"]["annotations"]["huawei.com/Ascend910B3"]
    over = bound_to(pod_of("c", asks, annotations=dict(shared)), ledger)
    assert isinstance(over, Misfit)
    assert "1/1 CardInsufficientCore" == over.text


# Groups


@pytest.mark.property
@profile(100)
@given(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=8), st.integers(1, 8))
def test_devices_are_of_as_few_groups_as_possible(groups: list[str | None], count: int) -> None:
    """Brute force finds no set of as many devices in fewer groups."""
    uses = [a_use(index, custom={"group": group}) for index, group in enumerate(groups)]
    options = [ShareOption(use, Share(use.device.id, "X", 0, 0)) for use in uses]

    found = largest_groups_first(options, count, lambda option: option.use.device.custom["group"])

    if found is None:
        assert count > len(groups) or (count < len(groups) and count > sum(group is not None for group in groups))
        return
    assert count == len({option.uuid for option in found})
    if count < len(groups):
        named = [group for group in groups if group is not None]
        fewest = min(len(set(chosen)) for chosen in combinations(named, count))
        assert fewest == len({option.use.device.custom["group"] for option in found})


# MetaX


def a_linked(index: int, zone: int, *, used: bool = False) -> DeviceUse:
    """Return a MetaX device in *zone*."""
    return a_use(index, SGPU.key, used=used, custom={"linkZone": zone, "qosPolicy": ""})


ZONES = st.lists(st.integers(0, 3), min_size=1, max_size=8)


@pytest.mark.property
@profile(100)
@given(ZONES, st.integers(1, 8))
def test_whole_devices_come_from_the_smallest_zone_that_has_enough(zones: list[int], count: int) -> None:
    """What is large stays whole for who needs it; devices without links are the last resort."""
    uses = [a_linked(index, zone) for index, zone in enumerate(zones)]
    found = choose(SGPU, an_attempt(SGPU, count, uses, core_percent=100))
    sizes = {zone: zones.count(zone) for zone in zones if zone}
    enough = [size for size in sizes.values() if size >= count]

    if count > len(zones):
        assert found is None
        return
    assert isinstance(found, list)
    assert count == len(set(found))
    chosen = [zones[index] for index in found]
    if count == len(zones):
        return
    if enough:
        assert {min(enough)} == {sizes[zone] for zone in chosen}
        assert 1 == len(set(chosen))
    else:
        assert sum(zone != 0 for zone in chosen) == min(count, sum(sizes.values()))


@pytest.mark.property
@profile(100)
@given(ZONES, st.data())
def test_rating_of_links_counts_those_had_and_those_cut(zones: list[int], data: st.DataObject) -> None:
    """Ten per pair of one zone that the Pod gets, ten times over, less those between its devices and the free rest."""
    chosen = data.draw(st.sets(st.sampled_from(range(len(zones))), min_size=1))
    uses = [a_linked(index, zone) for index, zone in enumerate(zones)]
    shares = (tuple(Share(str(index), SGPU.key, 0, 100) for index in sorted(chosen)),)
    devices = {use.device.id: use.device for use in uses}
    constraints = Constraints(vendor_annotations=(("metax-tech.com/sgpu-topology-aware", "true"),))
    pairs = [(a, b) for a, b in combinations(range(len(zones)), 2) if zones[a] and zones[a] == zones[b]]
    had = sum(a in chosen and b in chosen for a, b in pairs)
    cut = sum((a in chosen) != (b in chosen) for a, b in pairs)

    for policy, weight in (("binpack", 10000), ("spread", -10000), ("other", 10000)):
        view = NodeView({}, constraints, policy, shares, uses, devices)
        assert SGPU.rate is not None
        assert weight * (100 * had - 10 * cut) == SGPU.rate(view)


@pytest.mark.parametrize(
    ("pods", "wanted", "expected"),
    [
        ([], "online", None),
        (["offline"], "online", None),
        (["online"], "online", None),
        (["online", "offline"], "offline", Reason.APP_CLASS),
        (["offline"], "offline", None),
        (["offline"], "", Reason.APP_CLASS),
        ([""], "online", Reason.APP_CLASS),
        ([""], "", None),
    ],
)
def test_pods_of_different_classes_keep_apart(pods: list[str], wanted: str, expected: Reason | None) -> None:
    """Classed Pods and others never mix, and nobody joins an online Pod only to be stopped by it."""
    use = a_linked(0, 0, used=bool(pods))
    use.pods = tuple(PodOnDevice((("metax-tech.com/sgpu-app-class", found),), 10) for found in pods)
    vendor_annotations = (("metax-tech.com/sgpu-app-class", wanted),) if wanted else ()

    assert SGPU.fit.check_first is not None
    assert expected is SGPU.fit.check_first(use, an_attempt(SGPU, 1, [use], 10, vendor_annotations=vendor_annotations))


@pytest.mark.parametrize(
    ("reported", "coming", "expected"),
    [
        ("burst-share", None, Reason.QOS),
        ("best-effort", None, None),
        ("", None, None),
        ("best-effort", "burst-share", Reason.QOS),
        ("burst-share", "best-effort", None),
    ],
)
def test_policy_of_a_device_is_that_of_the_pods_it_is_being_set_up_for(
    reported: str, coming: str | None, expected: Reason | None
) -> None:
    """The Node reports what was; a Pod whose share the plugin has not set up yet says what will be."""
    use = a_use(0, SGPU.key, used=True, custom={"linkZone": 0, "qosPolicy": reported})
    if coming is not None:
        use.pods = (PodOnDevice((("metax-tech.com/sgpu-qos-policy", coming),), 10, is_set_up=False),)
    attempt = an_attempt(SGPU, 1, [use], 10, vendor_annotations=(("metax-tech.com/sgpu-qos-policy", "best-effort"),))

    assert SGPU.fit.check_first is not None
    assert expected is SGPU.fit.check_first(use, attempt)


def one_sgpu() -> dict[str, Any]:
    """Return Node n1 with one device that nobody uses."""
    node = node_of("metax-tech.com", sgpu=9)
    device = {"uuid": "GPU-a", "totalDevCount": 9, "totalCompute": 100, "totalVRam": 9000, "healthy": True}
    node["metadata"]["annotations"] = {"metax-tech.com/node-gpu-devices": json.dumps([device])}
    return node


def asking_for_sgpu(name: str, policy: str) -> dict[str, Any]:
    """Return a Pod that asks for a tenth of a device under *policy*."""
    asks = {"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "1", "metax-tech.com/vcore": "10"}
    return pod_of(name, asks, annotations={"metax-tech.com/sgpu-qos-policy": policy})


def test_policy_of_a_bound_pod_counts_until_its_plugin_is_done() -> None:
    """The bind phase tells: `allocating` is yet to come, anything else has come."""
    ledger = a_cluster(one_sgpu()).ledger
    first = bound_to(asking_for_sgpu("a", "burst-share"), ledger)
    other = asking_for_sgpu("b", "best-effort")
    assert isinstance(first, dict)

    for phase, expected in (("allocating", "1/1 CardQosPolicyMismatch"), ("success", "")):
        first["metadata"]["annotations"]["hami.io/bind-phase"] = phase
        grant = read_grant(first, vendors())
        assert grant is not None
        ledger.put(grant)
        found = try_node(read_request(other, vendors(), Policies()), "n1", ledger, {})
        assert expected == (found.text if isinstance(found, Misfit) else "")


def test_policy_of_a_simulated_pod_counts_for_those_after_it() -> None:
    """As it would, were they created one after the other."""
    cluster = a_cluster(one_sgpu())
    pods = [asking_for_sgpu("a", "burst-share"), asking_for_sgpu("b", "best-effort")]

    first, second = finish(simulate(as_new(pods, cluster.vendors, Policies()), cluster.view, only_devices(cluster)))

    assert ("fits", "refused") == (first.verdict, second.verdict)
    assert ["1/1 CardQosPolicyMismatch"] == [node.code for node in second.nodes]


# Kunlun


@pytest.mark.property
@profile(100)
@given(st.sets(st.integers(0, 7)), st.sampled_from([1, 2, 3, 4, 8]))
def test_wings_give_free_devices_that_are_linked(used: set[int], count: int) -> None:
    """As many as asked, none of them in use, and of two or four every one linked to another."""
    uses = [a_use(index, KUNLUN.key, used=index in used) for index in range(8)]
    found = choose(KUNLUN, an_attempt(KUNLUN, count, uses))

    if isinstance(found, Misfit):
        assert "1/8 NumaNotFit" == found.text
        assert count == 3 or len(used) > 8 - count or count in {2, 4}
        return
    assert isinstance(found, list)
    assert count == len(set(found))
    assert used.isdisjoint(found)
    if count > 1:
        assert all(any(a // 4 == b // 4 or a % 4 == b % 4 for b in found if a != b) for a in found)


def test_part_of_another_size_does_not_share_a_device() -> None:
    """All parts of a device are equal."""
    rules = VENDOR_RULES["XPU"]
    use = a_use(0, rules.key, memory_mib=98304)
    use.replicas, use.memory_mib = 2, 49152

    assert rules.fit.check_last is not None
    for memory_mib, expected in ((24576, None), (49152, Reason.MODE)):
        attempt = Attempt(Request(rules.key, 1, memory_mib, None, 25), Constraints(), [use])
        assert expected is rules.fit.check_last(use, attempt)


# AWS


@pytest.mark.property
@profile(100)
@given(st.integers(0, 3), st.integers(0, 2))
def test_cores_are_free_ones_and_the_lowest(used: int, asked: int) -> None:
    """A core has one owner; a request for devices takes all cores of each."""
    use = a_use(0, NEURON.key, count=2, core_percent=0b11)
    use.core_percent = used
    attempt = Attempt(Request(NEURON.key, 1, 0, None, asked), Constraints(), [use])
    assert NEURON.fit.amounts is not None
    assert NEURON.fit.check_last is not None
    wanted = asked or 2

    taken = NEURON.fit.amounts(use, attempt).core_percent

    assert 0 == taken & used
    if used.bit_count() + wanted > 2:
        assert Reason.CORE is NEURON.fit.check_last(use, attempt)
    else:
        assert None is NEURON.fit.check_last(use, attempt)
        assert wanted == taken.bit_count()


@pytest.mark.parametrize(
    ("kind", "used", "count", "expected"),
    [
        ("trn1.32xlarge", {1}, 4, [4, 5, 6, 7]),
        ("trn1.32xlarge", set(), 3, None),
        ("trn1.32xlarge", {0, 4, 8, 12}, 4, None),
        ("inf2.48xlarge", {1}, 3, [2, 3, 4]),
        ("Inf1.6xlarge", {0, 2, 4, 6, 8, 10, 12, 14}, 2, None),
    ],
)
def test_runs_start_anywhere_on_a_ring_and_at_groups_elsewhere(
    kind: str, used: set[int], count: int, expected: list[int] | None
) -> None:
    """A group that is not whole is no group."""
    uses = [a_use(i, NEURON.key, used=i in used, custom={"instance_type": kind}) for i in range(16)]

    found = choose(NEURON, an_attempt(NEURON, count, uses))

    assert (expected or "1/16 NumaNotFit") == (found.text if isinstance(found, Misfit) else found)


# Devices that only the capacity tells


def test_capacity_becomes_devices_with_their_parts() -> None:
    """Compute tells how many there are, a rest makes one more; memory is divided."""
    found = {
        node["metadata"]["name"]: [
            (device.id, device.count, device.memory_mib, device.core_percent)
            for device in read_inventory(node, vendors())[0].devices
        ]
        for node in (
            node_of("cambricon.com", "m", mlu__smlu__vcore=150, mlu__smlu__vmemory=96),
            node_of("mthreads.com", "t", sgpu_core=32, sgpu_memory=192),
            node_of("metax-tech.com", "x", gpu=1),
            node_of("kunlunxin.com", "k", xpu=2),
        )
    }

    assert [("m-cambricon-mlu-0", 100, 16384, 100), ("m-cambricon-mlu-1", 100, 16384, 100)] == found["m"]
    assert [("t-mthreads-0", 100, 49152, 16), ("t-mthreads-1", 100, 49152, 16)] == found["t"]
    assert [("x-metax-0", 1, 65536, 100)] == found["x"]
    assert [("k-kunlun-0", 100, 98304, 100), ("k-kunlun-1", 100, 98304, 100)] == found["k"]


def test_capacity_that_no_machine_has_is_a_problem() -> None:
    """A slip of one vendor's plugin costs that vendor's devices, not memory and not the others'."""
    node = node_of("metax-tech.com", gpu=DEVICES_PER_NODE + 1)
    node["status"]["capacity"]["kunlunxin.com/xpu"] = "8"

    inventory, problems = read_inventory(node, vendors())

    assert ["metax-tech.com/gpu"] == [problem.key for problem in problems]
    assert {"kunlun"} == {device.vendor for device in inventory.devices}


def test_device_of_a_type_that_names_another_vendor_is_nobodys() -> None:
    """HAMi goes by the type, so it offers such a device to nobody; neither do we."""
    node = node_of("hygon.com", dcunum=4)
    node["metadata"]["annotations"] = {"hami.io/node-dcu-register": "DCU-a,4,16384,100,Z100,0,true:"}

    found = filter_nodes(
        read_request(pod_of("p", {"hygon.com/dcunum": "1"}), vendors(), Policies()),
        ["n1"],
        a_cluster(node).view,
    )

    assert {"n1": "NodeInsufficientDevice"} == found.refusal.failed_nodes


# Compute that is no percentage


def an_amd_node() -> dict[str, Any]:
    """Return a Node with one device of 304 compute units."""
    node = node_of("amd.com", "n2", gpu=10)
    device = {"id": "AMD-a", "count": 10, "devmem": 65536, "devcore": 304, "type": "AMD MI300X", "health": True}
    node["metadata"]["annotations"] = {"hami.io/node-amd-register": json.dumps([device])}
    return node


def test_compute_is_a_percentage_in_metrics_for_every_vendor() -> None:
    """Neuron has a bit for each core, AMD has units: 33 and 10 percent are 100 and 30 of 304, rounded up as HAMi's."""
    cluster = a_cluster(node_of("aws.amazon.com", neuron=2, neuroncore=4), an_amd_node())
    asked = {"amd.com/gpu": "1", "amd.com/gpumem": "1000"}
    for pod, node in (
        (pod_of("half", {"aws.amazon.com/neuroncore": "1"}), "n1"),
        (pod_of("third", asked | {"amd.com/gpucores": "33"}), "n2"),
        (pod_of("tenth", asked | {"amd.com/gpucores": "10"}), "n2"),
    ):
        assert not isinstance(bound_to(pod, cluster.ledger, node), Misfit)
    registry = CollectorRegistry()
    observed = Observed(dict, lambda: 0)
    registry.register(ClusterCollector(lambda: cluster, observed, has_legacy_names=False, device_limit=9))
    text = generate_latest(registry).decode()

    told = {
        (name, whose): float(value)
        for name, labels, value in re.findall(r"^hami_(\w*core\w*)_ratio{(.*)} (\S+)$", text, re.MULTILINE)
        for whose in ["/".join(re.findall(r'(?:device_uuid|pod|device_type|part)="(.*?)"', labels))]
    }
    assert {
        ("scheduler_core", "AMD MI300X/offered"): 100,
        ("scheduler_core", "AMD MI300X/granted"): 100 * 130 / 304,
        ("scheduler_core", "AWSNeuron/offered"): 200,
        ("scheduler_core", "AWSNeuron/granted"): 50,
        ("gpu_core_limit", "AMD MI300X/AMD-a"): 100,
        ("gpu_core_limit", "AWSNeuron/n1-AWSNeuron-0"): 100,
        ("gpu_core_limit", "AWSNeuron/n1-AWSNeuron-1"): 100,
        ("gpu_core_allocated", "AMD MI300X/AMD-a"): 43,
        ("gpu_core_allocated", "AWSNeuron/n1-AWSNeuron-0"): 0,
        ("gpu_core_allocated", "AWSNeuron/n1-AWSNeuron-1"): 50,
        ("vgpu_core_allocated", "AMD-a/third"): 33,
        ("vgpu_core_allocated", "AMD-a/tenth"): 10,
        ("vgpu_core_allocated", "n1-AWSNeuron-1/half"): 50,
    } == told


# All vendors

CASES: dict[str, list[dict[str, Any]]] = {
    path.stem: [case for case in json.loads(path.read_text(encoding="utf-8")) if case["form"] == "names"]
    for path in sorted(VECTORS.glob("*.json"))
    if path.stem not in {"requests", "sequence", "hostile"}
}


@pytest.mark.property
@profile(100)
@given(st.sampled_from(sorted(CASES)), st.data())
def test_pods_one_after_the_other_never_get_more_than_there_is(name: str, data: st.DataObject) -> None:
    """Whatever vendor, whatever Pods: no device gives a replica, a MiB or a core twice, and every bind reads back."""
    case = data.draw(st.sampled_from(CASES[name]))
    ledger = a_cluster(*case["nodes"], config="default").ledger
    for number in range(6):
        asking = json.loads(json.dumps(data.draw(st.sampled_from(CASES[name]))["pod"]))
        asking["metadata"] |= {"uid": f"p{number}", "name": f"p{number}"}
        asking["metadata"]["annotations"].pop("hami.io/device-scoring-weights", None)
        node = data.draw(st.sampled_from([entry.inventory.name for entry in ledger.nodes()] or [""]))
        bound = bound_to(asking, ledger, node) if node else None
        if isinstance(bound, dict):
            grant = read_grant(bound, vendors())
            held = ledger.grant(f"p{number}")
            assert (grant is None or not grant.amounts) is (held is None or not held.amounts)
            if grant is not None and held is not None:
                assert {u: (a.memory_mib, a.core_percent) for u, a in held.amounts.items()} == {
                    u: (a.memory_mib, a.core_percent) for u, a in grant.amounts.items()
                }
    assert 0 == ledger.recount()


@pytest.mark.property
@profile(100)
@given(st.sampled_from(sorted(VENDOR_RULES)), st.text(max_size=200), st.text(max_size=20))
def test_no_annotation_of_a_node_breaks_its_reading(key: str, text: str, amount: str) -> None:
    """A text that is no inventory is a problem of that vendor, never an exception."""
    rules = VENDOR_RULES[key]
    amounts = dict.fromkeys(rules.vendor.resource_names, amount)
    annotations = {rules.vendor.register_key: text, **dict.fromkeys(rules.node_keys, text)}
    node = {"metadata": {"name": "n1", "annotations": annotations}, "status": {"capacity": amounts}}

    inventory, _ = read_inventory(node, vendors())

    assert all(device.vendor == key for device in inventory.devices)


def test_every_vendor_is_placed_under_the_keys_it_is_described_by() -> None:
    """No vendor is described and then forgotten."""

    config = load_device_config((VECTORS / "device-config-default.yaml").read_text(encoding="utf-8"))

    assert [vendor.key for vendor in config.vendors()] == [rules.key for rules in vendors()]


@pytest.mark.parametrize("key", ["kunlun", "XPU"])
def test_kunlun_keeps_to_the_uuid_lists_of_both_its_backends(key: str) -> None:
    """A device must be on every list of what to use, and on none of what not to."""
    annotations = {
        "baidu.com/use-gpuuuid": "k0,k1,k2",
        "hami.io/use-xpu-uuid": "k1, k2, k3",
        "hami.io/no-use-xpu-uuid": "k2",
    }
    constraints = VENDOR_RULES[key].read_constraints(annotations, read_device_policy("spread"))
    only_theirs = VENDOR_RULES[key].read_constraints({"baidu.com/nouse-gpuuuid": "k1"}, read_device_policy("spread"))

    assert ["k1"] == [uuid for uuid in ("k0", "k1", "k2", "k3") if constraints.accepts_uuid(uuid)]
    assert ["k0"] == [uuid for uuid in ("k0", "k1") if only_theirs.accepts_uuid(uuid)]


@pytest.mark.parametrize(
    ("refusals", "is_mutex", "expected"),
    [
        ({}, False, "1/8 NumaNotFit"),
        ({Reason.MEMORY: 5, Reason.MODE: 1}, False, "1/8 NumaNotFit"),
        ({Reason.UUID: 7}, False, "7/8 CardUuidMismatch"),
        ({Reason.UNHEALTHY: 2, Reason.MEMORY: 6}, False, "2/8 CardNotHealth"),
        ({Reason.EXCLUSIVE: 8}, True, "8/8 ExclusiveDeviceAllocateConflict"),
    ],
)
def test_kunlun_tells_of_links_only_where_no_device_is_ruled_out(
    refusals: dict[Reason, int], is_mutex: bool, expected: str
) -> None:
    """What rules a device out is the reason; without any the devices left are not linked."""
    rules = VENDOR_RULES["XPU"]
    attempt = an_attempt(rules, 4, [a_use(index, "XPU") for index in range(8)], is_mutex=is_mutex)
    assert rules.fit.choose is not None
    chooser = rules.fit.choose(attempt)
    assert chooser is not None
    found = chooser(attempt, [], refusals)

    assert isinstance(found, Misfit)
    assert expected == found.text


def test_enflame_memory_is_shown_in_mib() -> None:
    """10 is GiB, 8192 MiB."""
    rules = next(rules for rules in vendors() if rules.memory_in_mib(1) != 1)
    told = [describe(Request(rules.key, 1, amount, None, 0), rules) for amount in (10, 8192)]

    assert [f"1 {rules.key} device with {mib} MiB" for mib in (10240, 8192)] == told


def test_every_module_of_a_vendor_is_found() -> None:
    """A module that is named as no vendor would never be asked."""
    assert {module.name for module in iter_modules(own_vendors.__path__)} <= set(descriptions())
