"""
The limits of ResourceQuotas: units of vendors, fractions, scopes.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import DeviceConfig, load_device_config
from hamicommon.model import Request
from hamicommon.vendors import enflame, metax
from hamicommon.vendors.description import limit_readers
from hamicommon.wire.resource_quota import PREFIX, hard_limits, unapplied_limits

VECTORS = Path(__file__).parents[1] / "vectors"
CASES = json.loads((VECTORS / "resource-quotas" / "limits.json").read_text())
CONFIGS: dict[str, DeviceConfig] = {
    name: load_device_config((VECTORS / "device-config" / f"{name}.yaml").read_text()) for name in ("default", "tuned")
}
READERS = {name: limit_readers(config.vendors()) for name, config in CONFIGS.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_limits_are_read_in_the_unit_of_their_resource(case: dict[str, Any]) -> None:
    """As MiB, or as cores; fractions never allow more than is written."""
    assert case["limits"] == hard_limits({"spec": case["spec"]}, READERS[case["config"]])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["case"])
def test_limits_are_set_or_known_not_to_be(case: dict[str, Any]) -> None:
    """A limit with scopes does not apply, and is reported."""
    quota, readers = {"spec": case["spec"]}, READERS[case["config"]]
    without = {"spec": {"hard": case["spec"]["hard"]}}

    assert hard_limits(without, readers) == {**hard_limits(quota, readers), **unapplied_limits(quota, readers)}


@pytest.mark.parametrize("quota", [{}, {"spec": None}, {"spec": {"hard": None}}, {"spec": {"scopeSelector": None}}])
def test_a_quota_that_says_nothing_sets_nothing(quota: dict[str, Any]) -> None:
    """Absent and null parts are empty."""
    assert {} == hard_limits(quota, READERS["default"])


@pytest.mark.parametrize("text", ["1", "4", "1000", "8Gi", "4096Mi", "1Mi"])
def test_a_metax_limit_of_what_a_container_asks_allows_just_that(text: str) -> None:
    """A text means the same in both. The API server shows a limit of 1000 as 1k."""
    config = CONFIGS["default"]
    limits = {config[metax.SECTION].resource_vcount_name: "1", config[metax.SECTION].resource_vmemory_name: text}
    request = metax.parse_sgpu_request({"limits": limits}, config[metax.SECTION])

    assert request is not None
    assert request.memory_mib == metax.limit_mib("1k" if text == "1000" else text)


@pytest.mark.property
@given(number=st.integers(1, 2**20), sizes=st.sets(st.integers(1, 400), min_size=1, max_size=6))
def test_an_enflame_profile_has_no_less_than_the_request_counts_as(number: int, sizes: set[int]) -> None:
    """A request over quota at admission is also over quota at placement, unless its MiB make no whole GiB."""
    profiles = [enflame.Profile(f"{gib}g.{gib}gb", "", gib, gib, gib) for gib in sorted(sizes)]
    request = Request(enflame.DRS_KEY, 1, number, None, 0)
    found = enflame.profile_for(request, profiles)

    memory_mib, core_percent = enflame.amounts_before_placement(request)
    if found is not None and not 2 * max(sizes) < number < 1024:
        assert memory_mib <= found.memory_mib
        assert core_percent <= found.core_percent


@pytest.mark.parametrize(("asked", "held"), [(0, 0), (30, 30), (100, 100), (101, 100), (200, 100)])
def test_a_request_holds_at_most_all_of_a_devices_cores(asked: int, held: int) -> None:
    """A vendor that counts all devices together, such as Iluvatar, asks for more."""
    assert held == Request("v", 2, 0, 100, asked).held_core_percent


@given(text=st.from_regex(r"[0-9]{1,6}(\.[0-9]{1,3})?(m|k|M|G|Mi|Gi)?", fullmatch=True))
def test_no_limit_is_overlooked(text: str) -> None:
    """Every quantity of every managed resource limits it."""
    hard = {PREFIX + resource: text for resource in READERS["tuned"]}

    assert READERS["tuned"].keys() == hard_limits({"spec": {"hard": hard}}, READERS["tuned"]).keys()
