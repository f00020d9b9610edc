"""
NVIDIA requests: HAMi's answers, our deliberate differences, and properties for any amounts.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import load_device_config
from hamicommon.model import Request
from hamicommon.vendors import nvidia
from hamicommon.vendors.nvidia import NvidiaConfig
from hamicommon.wire.quantity import INT32_MAX

from .wrapped import amount, is_dropped, unwrapped

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = {case["case"]: case for case in json.loads((VECTORS / "requests" / "nvidia.json").read_text())}


def config(name: str) -> NvidiaConfig:
    """Return the `nvidia` section of one of the chart's renderings."""
    return load_device_config((VECTORS / "device-config" / f"{name}.yaml").read_text())[nvidia.SECTION]


@pytest.mark.parametrize("name", CASES)
def test_requests_are_read_as_hami_reads_them(name: str) -> None:
    """Every answer of HAMi v2.10.0, without its wrapped amounts."""
    case = CASES[name]
    section, resources = config(case["config"]), case["resources"]
    count = amount(resources, section.resource_count_name)
    found = nvidia.parse_request(resources, section)

    if not case["request"]:
        assert found is None or (is_dropped(count) and found.count == INT32_MAX)
        return
    expected = Request(vendor="NVIDIA", **case["request"])
    cores = unwrapped(amount(resources, section.resource_core_name), expected.core_percent)
    assert replace(expected, count=unwrapped(count, expected.count), core_percent=cores) == found


@pytest.mark.parametrize(
    ("asked", "hamis", "parts", "ours"),
    [
        (4294967297, 1, 1, INT32_MAX),
        (2147483648, -2147483648, 1, INT32_MAX),
        (4294967396, 100, 1, INT32_MAX),
        (4294967300, 2, 2, INT32_MAX // 2),
        (-5, -5, 1, 0),
        (4294967297, 7, 1, 7),
        (50, 50, 1, 50),
        (None, 100, 1, 100),
    ],
)
def test_only_a_wrapped_amount_is_another(asked: int | None, hamis: int, parts: int, ours: int) -> None:
    """The rule explains no other difference."""
    assert ours == unwrapped(asked, hamis, parts)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"gpu": "1", "gpucores": "100"}, Request("NVIDIA", 1, 0, 100, 100)),
        ({"gpu": "2", "gpumem": "4096"}, Request("NVIDIA", 2, 4096, None, 0)),
        ({"gpu": "1", "gpumem-percentage": "50"}, Request("NVIDIA", 1, 0, 50, 0)),
        ({"gpu": "1", "gpumem": "2000", "gpumem-percentage": "50"}, Request("NVIDIA", 1, 2000, None, 0)),
        ({"gpu": "1", "gpumem": "16Gi"}, None),
        ({"gpu": "1", "gpucores": "150", "gpumem": "100"}, Request("NVIDIA", 1, 100, None, 150)),
        ({"gpu": "0"}, None),
        ({"gpumem": "100"}, None),
        ({"gpu": 1}, Request("NVIDIA", 1, 0, 100, 0)),
        ({"gpu": None}, None),
        ({"gpu": ["1"], "gpumem": {}}, None),
    ],
)  # fmt: skip
def test_the_documented_examples(limits: dict[str, Any], expected: Request | None) -> None:
    """What users write, and what they get."""
    resources = {"limits": {f"nvidia.com/{name}": value for name, value in limits.items()}}

    assert expected == nvidia.parse_request(resources, config("default"))


def test_a_resource_without_a_name_matches_nothing() -> None:
    """A device config without an `nvidia` section leaves every container alone."""
    assert nvidia.parse_request({"limits": {"": "1", "nvidia.com/gpu": "1"}}, NvidiaConfig()) is None


@pytest.mark.parametrize("resources", [{}, {"limits": None}, {"limits": []}, {"limits": "x", "requests": 7}])
def test_resources_of_any_shape_are_a_request_or_none(resources: dict[str, Any]) -> None:
    """An earlier decoder may accept any value."""
    assert nvidia.parse_request(resources, config("default")) is None


AMOUNTS = st.one_of(
    st.integers(-(2**70), 2**70).map(str), st.sampled_from(["1k", "16Gi", "0.5", "1000m", "1E", "x", ""]), st.none()
)


@pytest.mark.property
@given(st.fixed_dictionaries({"gpu": AMOUNTS, "gpumem": AMOUNTS, "gpumem-percentage": AMOUNTS, "gpucores": AMOUNTS}))
def test_no_amount_is_ever_negative_or_beyond_32_bits(amounts: dict[str, str | None]) -> None:
    """Every request fits every format."""
    resources = {"limits": {f"nvidia.com/{name}": value for name, value in amounts.items() if value is not None}}
    for name in ("default", "tuned"):
        request = nvidia.parse_request(resources, config(name))
        if request is not None:
            assert 0 < request.count <= INT32_MAX
            assert 0 <= request.memory_mib <= INT32_MAX
            assert 0 <= request.core_percent <= INT32_MAX
            assert (request.memory_percent is None) == (request.memory_mib > 0)
            assert request.memory_percent is None or 0 < request.memory_percent <= 100
