"""
Which XIDs make a device unhealthy.
"""

import pytest

from hami_device_plugin.decide.health.xids import health_policy


@pytest.mark.parametrize(
    ("disable", "enable", "xid", "expected"),
    [
        pytest.param("", "", 79, True, id="device error"),
        pytest.param("", "", 31, False, id="program's error"),
        pytest.param("79, 80", "", 79, False, id="disabled"),
        pytest.param("79", "79", 79, True, id="enabled wins"),
        pytest.param("", "ALL", 31, True, id="all enabled"),
        pytest.param("nonsense", "", 79, True, id="not a number"),
    ],
)
def test_xid_counts_by_the_two_lists(disable: str, enable: str, xid: int, expected: bool) -> None:
    """HAMi's rules for DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS."""
    assert expected == health_policy(disable, enable).is_critical(xid)


@pytest.mark.parametrize("disable", ["all", "xids", "79,ALL"])
def test_health_checks_can_be_switched_off(disable: str) -> None:
    """Enabling single XIDs does not switch them on again; enabling all does."""
    assert not health_policy(disable, "").is_on
    assert not health_policy(disable, "79").is_on
    assert health_policy(disable, "all").is_on
