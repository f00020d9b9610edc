"""
Which numbers of a region count, and how much of it is read.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.grants import Grant
from hami_monitor.decide.usage import SLOTS_EACH_SCRAPE, affordable, container_usage, granted_devices
from hamicommon.model import Share
from hamicommon.wire.region.sums import DeviceSums, ProcessSums, RegionState


def a_state(*uuids: bytes, last_kernel_time: int | None = 0) -> RegionState:
    """Return the state of a region with these device names."""
    return RegionState(uuids, 1, 0, 1, last_kernel_time)


def a_grant(*uuids: str) -> Grant:
    """Return the grant of these devices."""
    return Grant(tuple(Share(uuid, "NVIDIA", 1000, 0) for uuid in uuids))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param((b"GPU-a", b"GPU-b"), {0: "GPU-a", 1: "GPU-b"}, id="as-granted"),
        pytest.param((b"GPU-b", b"", b"GPU-a"), {0: "GPU-b", 2: "GPU-a"}, id="in-the-region's-order"),
        pytest.param((b"", b""), {}, id="not-filled-in-yet"),
        pytest.param((b"GPU-z", b"GPU-a"), {1: "GPU-a"}, id="not-granted"),
        pytest.param((b"GPU-\xff", b"GPU-a\n{", b"GPU-a0"), {}, id="any-text"),
        pytest.param((b"GPU-a",) * 16, {0: "GPU-a"}, id="named-again"),
    ],
)
def test_region_is_believed_about_granted_devices_only(names: tuple[bytes, ...], expected: dict[int, str]) -> None:
    """A container writes its region; which devices it has is in its Pod."""
    assert expected == granted_devices(a_state(*names), a_grant("GPU-a", "GPU-b"))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [(None, None), (0, None), (1, 1), (1_700_000_000, 1_700_000_000), (2**64 - 1, None), (2**63, None)],
)
def test_time_of_the_last_launch_is_a_positive_time(stored: int | None, expected: int | None) -> None:
    """0 means never, and so does a time that is negative as a signed number."""
    sums = ProcessSums(devices={0: DeviceSums()})

    usage = container_usage(a_state(b"GPU-a", last_kernel_time=stored), sums, {0: "GPU-a"})

    assert expected == usage.last_kernel_seconds


def test_containers_that_claim_countless_processes_are_left_out_themselves() -> None:
    """Every honest container is read, whatever its neighbours claim."""
    honest = {f"honest-{index}": 64 for index in range(110)}
    forged = {f"forged-{index}": 1024 * 8 for index in range(110)}

    chosen = affordable(forged | honest)

    assert honest.keys() <= set(chosen)
    assert sum((forged | honest)[key] for key in chosen) <= SLOTS_EACH_SCRAPE


@given(st.dictionaries(st.integers(), st.integers(0, 50)), st.integers(0, 300))
@pytest.mark.property
def test_no_more_is_read_than_allowed_and_the_cheapest_first(costs: dict[int, int], most: int) -> None:
    """What is left out costs at least as much as everything that is read."""
    chosen = affordable(costs, most)

    assert sum(costs[key] for key in chosen) <= most
    left_out = [cost for key, cost in costs.items() if key not in chosen]
    assert max((costs[key] for key in chosen), default=0) <= min(left_out, default=50)
