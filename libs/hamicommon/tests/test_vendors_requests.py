"""
Requests of the other vendors: HAMi's answers, our deliberate differences, and properties.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import DeviceConfig, load_device_config
from hamicommon.model import Request
from hamicommon.vendors import enflame
from hamicommon.vendors.description import Vendor
from hamicommon.wire.quantity import INT32_MAX

from .wrapped import amount, is_dropped, unwrapped

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = {case["case"]: case for case in json.loads((VECTORS / "requests" / "others.json").read_text())}
CONFIGS: dict[str, DeviceConfig] = {
    name: load_device_config((VECTORS / "device-config" / f"{name}.yaml").read_text()) for name in ("default", "tuned")
}


def read(resources: dict[str, Any], config: str) -> dict[str, Request]:
    """Return what *resources* ask, by vendor."""
    found = {vendor.key: vendor.parse_request(resources) for vendor in CONFIGS[config].vendors()}
    return {key: request for key, request in found.items() if request is not None}


def as_ours(vendor: str, hami: dict[str, int]) -> Request:
    """
    Return HAMi's request as we keep it: a percentage only where it decides.

    AMD's 0 % and the 0 % of nothing else are all of a device. Enflame's percentage is a mark: 0 where the memory is a
    number of parts, -1 where it is memory.
    """
    count, memory_mib, percent, cores = (
        hami[name] for name in ("count", "memory_mib", "memory_percent", "core_percent")
    )
    if vendor == "Enflame":
        return Request(vendor, count, 0 if percent == 0 else memory_mib, None, cores, memory_mib if percent == 0 else 0)
    if vendor == "AMD" and not memory_mib:
        percent = 100
    return Request(vendor, count, memory_mib, None if memory_mib or vendor == "AWSNeuron" else percent, cores)


@pytest.mark.parametrize("name", CASES)
def test_requests_are_read_as_hami_reads_them(name: str) -> None:
    """Every answer of HAMi v2.10.0, without its wrapped amounts."""
    case = CASES[name]
    names = {vendor.key: vendor for vendor in CONFIGS[case["config"]].vendors()}
    found = read(case["resources"], case["config"])
    more = found.keys() - case["requests"].keys()

    assert [] == [key for key in more if not is_dropped(amount(case["resources"], names[key].resource_names[0]))]
    assert {INT32_MAX} >= {found[key].count for key in more}
    expected = {
        key: as_ours(key, without_wraps(names[key], hami, case["resources"])) for key, hami in case["requests"].items()
    }
    assert expected == {key: request for key, request in found.items() if key not in more}


def without_wraps(vendor: Vendor, hami: dict[str, int], resources: dict[str, Any]) -> dict[str, int]:
    """Return HAMi's request of *vendor* without amounts that it wrapped."""
    count = unwrapped(amount(resources, vendor.resource_names[0]), hami["count"])
    # Moore Threads says the cores of all devices together.
    parts = count if vendor.key == "Mthreads" else 1
    cores = unwrapped(amount(resources, vendor.core_resource_name), hami["core_percent"], parts)
    return {**hami, "count": count, "core_percent": cores}


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"cambricon.com/vmlu": "1", "cambricon.com/mlu.smlu.vmemory": "500m"}, None),
        ({"hygon.com/dcunum": "1", "hygon.com/dcumem": "999999999999999999"}, None),
        ({"hygon.com/dcunum": "1", "hygon.com/dcumem": "9223372036854775807"}, Request("DCU", 1, 0, 100, 100)),
        ({"hygon.com/dcunum": "-1"}, None),
        ({"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-core": "bad"}, Request("Ascend310P", 1, 0, 100, 0)),
        ({"huawei.com/Ascend310P": "1", "huawei.com/Ascend310P-core": "-1"}, None),
        ({"metax-tech.com/sgpu": "1", "metax-tech.com/vmemory": "1.5"}, Request("Metax-SGPU", 1, 0, 100, 100)),
        ({"kunlunxin.com/vxpu": "1", "kunlunxin.com/vxpu-memory": "1.5"}, Request("XPU", 1, 98304, None, 100)),
        ({"mthreads.com/vgpu": "2", "mthreads.com/sgpu-memory": "x"}, None),
        ({"enflame.com/gcu-memory": "4294967297"}, None),
        ({"enflame.com/drs-gcu": "4294967297"}, None),
        ({"enflame.com/gcu-core": "-5"}, Request("Enflame", 1, 0, None, 0)),
        ({"amd.com/gpu": "1", "amd.com/gpumem": "500m"}, None),
        ({"amd.com/gpu": "1", "amd.com/gpumem": "-1"}, None),
        ({"aws.amazon.com/neuron": "4294967297"}, None),
        ({"aws.amazon.com/neuron": "x", "aws.amazon.com/neuroncore": "2"}, None),
    ],
)
def test_amounts_that_are_broken_or_too_large(limits: dict[str, str], expected: Request | None) -> None:
    """What is broken voids the request or counts as absent, as each vendor of HAMi does it; it never becomes small."""
    assert ({} if expected is None else {expected.vendor: expected}) == read({"limits": limits}, "default")


def test_legacy_name_of_enflames_shares_is_read() -> None:
    """A config written before 2.10 names them resourceNameVGCU."""
    config = load_device_config("enflame: {resourceNameVGCU: enflame.com/vgcu}")

    resources = {"limits": {"enflame.com/vgcu": 2}}
    assert Request("Enflame", 1, 0, None, 0, 2) == enflame.parse_drs_request(resources, config[enflame.SECTION])


AMOUNTS = st.one_of(
    st.integers(-(2**70), 2**70).map(str),
    st.from_regex(r"[0-9]{1,4}(\.[0-9])?(m|k|Ki|Gi|e3)?", fullmatch=True),
    st.text(),
)


@pytest.mark.property
@given(
    st.sampled_from([vendor for vendor in CONFIGS["tuned"].vendors() if vendor.key != "NVIDIA"]),
    st.lists(AMOUNTS, min_size=3, max_size=3),
    st.lists(AMOUNTS, max_size=3),
)
def test_no_amount_makes_a_request_negative_or_beyond_32_bits(
    vendor: Any, limits: list[str], requests: list[str]
) -> None:
    """Whatever a Pod says, what is read is an amount that can be granted or a request that fits nowhere."""
    resources = {
        "limits": dict(zip(vendor.resource_names, limits, strict=False)),
        "requests": dict(zip(vendor.resource_names, requests, strict=False)),
    }

    for request in read(resources, "tuned").values():
        assert 1 <= request.count <= INT32_MAX
        assert 0 <= request.memory_mib <= INT32_MAX
        assert 0 <= request.core_percent <= INT32_MAX
        assert 0 <= request.profile_size <= INT32_MAX
        assert request.memory_percent in {None, 100}
