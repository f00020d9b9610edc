"""
Dynamic resource allocation: the slices that are offered, and the claims that are read.
"""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.dra.claims import decode_claim
from hamicommon.dra.names import DRIVER
from hamicommon.dra.slices import Description, OfferedDevice, encode_device, encode_slice, mib_quantity
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
    found = encode_slice(NODE, devices, 7)

    assert [] == problems(found)
    assert all(len(one["attributes"]) + len(one["capacity"]) <= ENTRIES_MAX for one in found["spec"]["devices"])


@pytest.mark.property
@given(st.integers(1, 1 << 40))
def test_amount_of_memory_is_exact_and_as_the_api_server_writes_it(size_mib: int) -> None:
    """Or a slice would differ from what is there after each write."""
    text = mib_quantity(size_mib)

    assert size_mib << 20 == parse_quantity(text)
    assert int(text[:-2]) % 1024 or text.endswith("Ei")


def test_slice_of_a_node_without_uid_is_refused() -> None:
    """It would outlive its Node."""
    with pytest.raises(EncodeError, match="no name or UID"):
        encode_slice({"metadata": {"name": "n1"}}, [], 1)


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
