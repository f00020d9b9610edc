"""
Dynamic resource allocation: the slices that are offered, and the claims that are read.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.dra.claims import decode_claim, read_claims
from hamicommon.dra.names import DRIVER
from hamicommon.dra.partitions import encode_pool
from hamicommon.dra.slices import Description, OfferedDevice, encode_device, mib_quantity, read_slices
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.quantity import parse_quantity
from testbed.resource_slices import ENTRIES_MAX, problems

NODE = {"metadata": {"name": "n1", "uid": "node-uid"}}
A100 = Device("GPU-a", count=10, memory_mib=40960, core_percent=100, type="NVIDIA A100", numa=1)
DESCRIPTION = Description(
    minor=3,
    product_name="NVIDIA A100-SXM4-40GB",
    brand="Nvidia",
    architecture="Ampere",
    compute_capability="8.0",
    driver_version="535.104.05",
    cuda_driver_version="12.2",
    pci_bus_id="0000:01:00.0",
    pcie_root="pci0000:00",
)
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=80)
VERSIONS = st.lists(st.integers(0, 999), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
DEVICES = st.builds(
    OfferedDevice,
    st.builds(
        Device,
        st.uuids().map(lambda uuid: f"GPU-{uuid}"),
        count=st.integers(1, 1000),
        memory_mib=st.integers(2, 1 << 24),
        core_percent=st.integers(1, 1000),
        type=WORDS,
        numa=st.integers(0, 64),
    ),
    st.builds(
        Description,
        st.integers(0, 255),
        WORDS,
        WORDS,
        WORDS,
        st.just("") | VERSIONS,
        st.just("") | VERSIONS,
        st.just("") | VERSIONS,
        WORDS,
        WORDS,
    ),
    st.lists(st.sampled_from(["xid", "ecc", "reset-required"]), unique=True).map(tuple),
)


def a_result(**changes: object) -> dict[str, Any]:
    """Return a result of a claim."""
    consumed = {"memory": "1Gi", "cores": "30", "replicas": "1"}
    found = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "hami-gpu-0", "shareID": "s-1"}
    return found | {"consumedCapacity": consumed} | changes


def a_claim(*results: Any, config: list[Any] | None = None) -> dict[str, Any]:
    """Return a claim that is allocated to *results*, for one Pod."""
    return {
        "metadata": {"namespace": "ns", "name": "c", "uid": "claim-uid"},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": config}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-uid"}],
        },
    }


def test_device_has_hamis_names_and_nvidias_where_they_mean_the_same() -> None:
    """HAMi's DeviceClass and CEL written for NVIDIA's attributes both find it."""
    found = encode_device(OfferedDevice(A100, DESCRIPTION))

    assert "hami-gpu-3" == found["name"]
    assert {"string": "hami-gpu"} == found["attributes"]["type"]
    assert {"version": "535.104.5"} == found["attributes"]["driverVersion"]
    assert {"version": "8.0.0"} == found["attributes"]["gpu.nvidia.com/cudaComputeCapability"]
    assert {"string": "pci0000:00"} == found["attributes"]["resource.kubernetes.io/pcieRoot"]
    assert {"int": 1} == found["attributes"]["resource.kubernetes.io/numaNode"]
    assert "gpu.nvidia.com/type" not in found["attributes"]


def test_share_is_one_replica_and_all_of_a_device_by_default() -> None:
    """A request without amounts gets what it gets from HAMi's driver; nobody can ask for no replica."""
    capacity = encode_device(OfferedDevice(A100, DESCRIPTION))["capacity"]

    assert {"value": "40Gi", "default": "40Gi"} == {
        "value": capacity["memory"]["value"],
        "default": capacity["memory"]["requestPolicy"]["default"],
    }
    assert "100" == capacity["cores"]["requestPolicy"]["default"]
    assert {"value": "10", "requestPolicy": {"default": "1", "validValues": ["1"]}} == capacity["replicas"]


def test_scaled_compute_is_offered_and_one_share_has_100_percent_at_most() -> None:
    """A container cannot compute more than all the time."""
    scaled = Device("GPU-a", 10, 40960, 250, "NVIDIA A100")

    cores = encode_device(OfferedDevice(scaled, DESCRIPTION))["capacity"]["cores"]

    assert ("250", "100") == (cores["value"], cores["requestPolicy"]["validRange"]["max"])


def test_faults_are_taints_that_keep_new_shares_away() -> None:
    """A claim may tolerate them by our keys."""
    found = encode_device(OfferedDevice(A100, DESCRIPTION, ("xid",)))

    assert [{"key": "hami.io/device-xid", "effect": "NoSchedule"}] == found["taints"]


@pytest.mark.property
@given(st.lists(DEVICES, max_size=8, unique_by=lambda offered: offered.name))
def test_every_slice_is_one_that_the_api_server_takes(devices: list[OfferedDevice]) -> None:
    """Whatever a driver says of its devices, and however they are scaled."""
    found = encode_pool(NODE, devices, 7)[0]

    assert [] == problems(found)
    assert all(len(one["attributes"]) + len(one["capacity"]) <= ENTRIES_MAX for one in found["spec"]["devices"])


@pytest.mark.property
@given(st.integers(1, 1 << 40))
def test_amount_of_memory_is_exact_and_as_the_api_server_writes_it(size_mib: int) -> None:
    """Or a slice would differ from what is there after each write."""
    text = mib_quantity(size_mib)

    assert size_mib << 20 == parse_quantity(text)
    assert int(text[:-2]) % 1024 or text.endswith("Ei")


def a_slice(*devices: OfferedDevice, node: str = "n1", name: str = "", generation: int = 1, **pool: Any) -> Any:
    """Return a slice of Node *node* as the API server returns it, with *pool* changed."""
    found = encode_pool({"metadata": {"name": node, "uid": "node-uid"}}, devices, generation)[0]
    found["metadata"]["name"] = name or f"{node}-{generation}"
    found["spec"]["pool"] |= pool
    return found


def an_offer(minor: int = 0) -> OfferedDevice:
    """Return a device with UUID `GPU-<minor>`."""
    return OfferedDevice(Device(f"GPU-{minor}", 10, 40960, 100, "NVIDIA A100"), Description(minor))


@pytest.mark.property
@given(st.lists(DEVICES, max_size=8, unique_by=lambda offered: offered.name), st.integers(0, 1 << 40))
def test_slice_that_is_written_is_read_with_its_amounts(devices: list[OfferedDevice], generation: int) -> None:
    """Whoever counts shares has the same devices as the Node."""
    found, problems = read_slices([a_slice(*devices, generation=generation)])

    assert () == problems
    assert {
        offered.name: (
            offered.device.id[:64],
            offered.device.count,
            offered.device.memory_mib,
            offered.device.core_percent,
            not offered.faults,
        )
        for offered in devices
    } == {
        name: (one.device.id, one.device.count, one.device.memory_mib, one.device.core_percent, one.device.healthy)
        for name, one in found["n1"].items()
    }


@pytest.mark.property
@given(st.permutations([(generation, minor) for generation in (1, 2, 3) for minor in (0, 1)]))
def test_only_the_highest_generation_of_a_pool_counts_in_any_order(order: list[tuple[int, int]]) -> None:
    """Slices of an older generation may still be there."""
    slices = [a_slice(an_offer(generation * 10 + minor), generation=generation) for generation, minor in order]
    for one in slices:
        one["spec"]["pool"]["resourceSliceCount"] = 2

    found, problems = read_slices(slices)

    assert ({"hami-gpu-30", "hami-gpu-31"}, ()) == (set(found["n1"]), problems)


def test_pool_that_is_being_written_is_left_out_and_hides_no_other() -> None:
    """A slice of the new generation says that a second one follows."""
    slices = [
        a_slice(an_offer()),
        a_slice(an_offer(), generation=2, resourceSliceCount=2),
        a_slice(an_offer(), node="n2"),
    ]

    assert ({"n2"}, ()) == (set(read_slices(slices)[0]), read_slices(slices)[1])


def test_slices_of_other_drivers_are_ignored() -> None:
    """Even if they are of a form that this driver never writes."""
    assert ({}, ()) == read_slices([{"spec": {"driver": "gpu.nvidia.com", "pool": 7}}])


def changed(*path: Any, to: Any) -> Any:
    """Return a slice with the field at *path* of its spec set."""
    found = a_slice(an_offer())
    place = found["spec"]
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = to
    return found


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        pytest.param({}, "ResourceSlice.spec: 'None' is not an object", id="nothing"),
        pytest.param(
            changed("pool", "name", to="n2"),
            "ResourceSlice n1-1, spec.pool.name: is 'n2', and must be the Node 'n1'",
            id="another Node's pool",
        ),
        pytest.param(changed("nodeName", to=None), "spec.nodeName: 'None' is not a text", id="no Node"),
        pytest.param(
            changed("pool", "generation", to=True),
            "spec.pool.generation: 'True' is not a whole number",
            id="generation",
        ),
        pytest.param(
            changed("pool", "resourceSliceCount", to=0),
            "resourceSliceCount: '0' is not a whole number from 1",
            id="count",
        ),
        pytest.param(changed("devices", to=["x"]), "spec.devices[0]: 'x' is not an object", id="device"),
        pytest.param(changed("devices", to=[{}] * 129), "has 129 devices, and a slice may have 128", id="devices"),
        pytest.param(
            changed("devices", to=[encode_device(an_offer())] * 2),
            "spec.devices[1].name: 'hami-gpu-0' is listed twice",
            id="twice",
        ),
        pytest.param(
            changed("devices", 0, "attributes", "uuid", to={"string": "GPU:0"}),
            "spec.devices[0].attributes.uuid: 'GPU:0' has a separator",
            id="UUID",
        ),
        pytest.param(
            changed("devices", 0, "capacity", "memory", "value", to="9Ei"),
            "spec.devices[0].capacity.memory: '9Ei' is more than",
            id="memory",
        ),
        pytest.param(
            changed("devices", 0, "capacity", "replicas", to={"value": "1e9999999999"}),
            "capacity.replicas: '1e9999999999' is more than",
            id="replicas",
        ),
        pytest.param(
            changed("devices", 0, "taints", to=[{"effect": "NoExecute"}]),
            "spec.devices[0].taints[0].key: 'None' is not a text",
            id="taint",
        ),
    ],
)
def test_slice_of_another_form_is_reported_and_hides_no_other(bad: Any, message: str) -> None:
    """A Node may write what it likes about itself, and nothing about others."""
    found, [problem] = read_slices([bad, a_slice(an_offer(), node="n2")])

    assert message in str(problem)
    assert {"n2"} == set(found)


def test_pool_that_lists_a_device_in_two_slices_is_reported() -> None:
    """Nobody knows which of them counts."""
    slices = [a_slice(an_offer(), name=name, resourceSliceCount=2) for name in ("a", "b")]

    found, [problem] = read_slices(slices)

    assert ({}, "pool n1: two of its ResourceSlices list the same device") == (found, str(problem))


def test_taint_that_only_informs_closes_no_device() -> None:
    """kube-scheduler allocates it all the same."""
    slices = [changed("devices", 0, "taints", to=[{"key": "k", "effect": "None"}, {"key": "l", "effect": "NoExecute"}])]

    assert ("l",) == read_slices(slices)[0]["n1"]["hami-gpu-0"].taints


def test_slice_of_a_node_without_uid_is_refused() -> None:
    """It would outlive its Node."""
    with pytest.raises(EncodeError, match="no name or UID"):
        encode_pool({"metadata": {"name": "n1"}}, [], 1)


def test_version_that_is_no_numbers_is_left_out() -> None:
    """The API server would refuse the whole slice."""
    found = encode_device(OfferedDevice(A100, Description(0, driver_version="550.x")))

    assert "driverVersion" not in found["attributes"]


def test_claim_has_its_results_of_this_driver_only() -> None:
    """One claim may have devices of several drivers."""
    found = decode_claim(a_claim(a_result(), a_result(driver="gpu.nvidia.com"), a_result(request="big/first")))

    assert ("ns/c", "claim-uid", ("pod-uid",)) == (str(found), found.uid, found.pod_uids)
    assert ("gpu", "big") == found.requests
    assert [Amounts(1, 1024, 30)] * 2 == [result.amounts for result in found.results]
    assert ["gpu", "big/first"] == [result.request for result in found.results]


def test_result_without_amounts_is_the_whole_device() -> None:
    """A server that knows no shared devices leaves them out."""
    [result] = decode_claim(a_claim(a_result(consumedCapacity=None, shareID=None))).results

    assert (None, "") == (result.amounts, result.share_id)
    assert Amounts(10, 40960, 100) == result.of(A100)


def test_share_of_a_claim_has_the_devices_uuid_and_the_amounts() -> None:
    """That is what a container gets."""
    [result] = decode_claim(a_claim(a_result())).results

    share = result.share(A100)

    assert ("GPU-a", 1024, 30) == (share.uuid, share.memory_mib, share.core_percent)


@pytest.mark.parametrize(
    ("driver", "has_parameters"), [(DRIVER, True), ("gpu.nvidia.com", False)], ids=["ours", "another's"]
)
def test_parameters_for_other_drivers_are_theirs(driver: str, has_parameters: bool) -> None:
    """A claim of several drivers has the parameters of all."""
    config = [{"source": "FromClaim", "opaque": {"driver": driver, "parameters": {"kind": "GpuConfig"}}}]

    assert has_parameters is decode_claim(a_claim(a_result(), config=config)).has_parameters


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param({}, "ResourceClaim.metadata: 'None' is not an object", id="nothing"),
        pytest.param({"metadata": {"name": "c", "uid": "u"}}, "metadata.namespace: 'None' is not a text", id="no name"),
        pytest.param(
            a_claim(a_result(consumedCapacity={"cores": "1"})),
            "ResourceClaim ns/c, status.allocation.devices.results[0].consumedCapacity.memory: '' is not a quantity",
            id="no memory",
        ),
        pytest.param(
            a_claim(a_result(consumedCapacity={"cores": "1", "memory": "1500k"})),
            "consumedCapacity.memory: 1500000 bytes are not a whole number of MiB",
            id="odd memory",
        ),
        pytest.param(
            a_claim(a_result(consumedCapacity={"cores": "1500m", "memory": "1Gi"})),
            "consumedCapacity.cores: '1500m' is not a whole number from 0 on",
            id="part of a percent",
        ),
        pytest.param(a_claim(a_result(pool=7)), "results[0].pool: '7' is not a text", id="pool"),
        pytest.param(a_claim("x"), "results[0]: 'x' is not an object", id="result"),
    ],
)
def test_claim_of_another_form_is_an_error_that_names_the_field(claim: dict[str, Any], message: str) -> None:
    """With the claim, and what is wrong there."""
    with pytest.raises(DecodeError) as raised:
        decode_claim(claim)

    assert message in str(raised.value)


def test_bad_result_hides_neither_its_claims_good_ones_nor_other_claims() -> None:
    """What can be counted is counted, and each problem names claim and field."""
    bad = a_claim(a_result(pool=7), a_result(), config=["x"])
    bad["metadata"]["name"] = "bad"

    claims, problems = read_claims([{}, bad, a_claim(a_result())])

    assert [("ns/bad", 1), ("ns/c", 1)] == [(str(claim), len(claim.results)) for claim in claims]
    assert [
        "ResourceClaim.metadata: 'None' is not an object",
        "ResourceClaim ns/bad, status.allocation.devices.config[0]: 'x' is not an object",
        "ResourceClaim ns/bad, status.allocation.devices.results[0].pool: '7' is not a text",
    ] == [str(problem) for problem in problems]


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.property
@given(
    st.fixed_dictionaries(
        {"request": JSON_VALUES, "driver": st.just(DRIVER)},
        optional={"pool": JSON_VALUES, "device": JSON_VALUES, "shareID": JSON_VALUES, "consumedCapacity": JSON_VALUES},
    ),
    JSON_VALUES,
)
def test_any_claim_is_read_or_refused_with_a_place(result: dict[str, Any], config: Any) -> None:
    """The reader never fails in another way."""
    claim = a_claim(result) | {}
    claim["status"]["allocation"]["devices"]["config"] = config
    with suppress(DecodeError):
        assert "ns/c" == str(decode_claim(claim))


@pytest.mark.property
@given(st.dictionaries(st.sampled_from(["nodeName", "pool", "devices"]), JSON_VALUES), JSON_VALUES, JSON_VALUES)
def test_any_slice_is_read_or_reported(changes: dict[str, Any], attributes: Any, capacity: Any) -> None:
    """The reader never fails, and the slices of others are read."""
    bad = a_slice(an_offer())
    bad["spec"]["devices"][0] |= {"attributes": attributes, "capacity": capacity}
    bad["spec"] |= changes

    found, _ = read_slices([bad, a_slice(an_offer(), node="n2")])

    assert "hami-gpu-0" in found["n2"]
