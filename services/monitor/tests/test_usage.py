"""
Sums over a region's processes.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.usage import RegionReading, container_usage, total
from hamicommon.wire.region import LAYOUT_V1_2, decode_region

from .region_files import a_region

UNSIGNED_MAX = 2**64 - 1


def a_reading(content: bytes | bytearray, uuids: tuple[bytes, ...]) -> RegionReading:
    """Return a reading of *content* with these device names."""
    return RegionReading(decode_region(content), uuids)


@pytest.mark.parametrize(
    ("amounts", "expected"),
    [
        pytest.param([], 0, id="none"),
        pytest.param([1, 2, 3], 6, id="plain"),
        pytest.param([2**63 - 1, 2**63 - 1], 2**64 - 2, id="great-ones-do-not-wrap"),
        pytest.param([UNSIGNED_MAX], 0, id="one-below-zero"),
        pytest.param([100, UNSIGNED_MAX - 29], 70, id="freed-on-the-wrong-device-cancels-out"),
        pytest.param([2**63 + 5, 2**63 + 7], 0, id="sum-of-64-bits-would-be-12"),
    ],
)
def test_sum_takes_an_underflow_for_what_it_stands_for(amounts: list[int], expected: int) -> None:
    """An amount just below 2**64 is negative, and no sum is below 0."""
    assert expected == total(amounts)


@given(st.lists(st.integers(0, UNSIGNED_MAX), max_size=1024))
@pytest.mark.property
def test_sum_never_wraps(amounts: list[int]) -> None:
    """The sum equals that of the signed amounts, but is at least 0."""
    signed = sum(int.from_bytes(amount.to_bytes(8, "little"), "little", signed=True) for amount in amounts)

    assert max(0, signed) == total(amounts)


@given(st.lists(st.integers(0, 2**63 - 1), max_size=50), st.integers(0, 2**63 - 1))
@pytest.mark.property
def test_more_use_is_never_shown_as_less(amounts: list[int], more: int) -> None:
    """Adding a process does not lower the sum."""
    assert total(amounts) <= total([*amounts, more])


@pytest.mark.parametrize(
    ("uuid", "expected"),
    [
        pytest.param(b"", [], id="not-filled-in-yet"),
        pytest.param(b"GPU-\xff\xfe", [], id="not-text"),
        pytest.param(b"GPU-1", ["GPU-1"], id="short"),
        pytest.param(b"MIG-" + b"0" * 60, ["MIG-" + "0" * 36], id="cut-at-forty"),
        pytest.param(b'GPU-"\n{', ['GPU-"\n{'], id="text-of-any-kind"),
    ],
)
def test_device_is_shown_under_a_name_that_is_text(uuid: bytes, expected: list[str]) -> None:
    """HAMi shows forty bytes of the name, and leaves out empty names and invalid UTF-8."""
    usage = container_usage(a_reading(a_region(), (uuid,)))

    assert expected == [device.uuid for device in usage.devices]


def test_device_keeps_its_index_when_another_is_left_out() -> None:
    """`vdevice_index` is the position in the region."""
    usage = container_usage(a_reading(a_region(uuids=(b"a", b"b", b"c")), (b"a", b"", b"c")))

    assert [(0, "a"), (2, "c")] == [(device.index, device.uuid) for device in usage.devices]


@pytest.mark.parametrize(
    ("stored", "expected"), [(0, None), (1, 1), (1_700_000_000, 1_700_000_000), (UNSIGNED_MAX, None), (2**63, None)]
)
def test_time_of_the_last_launch_is_a_positive_time(stored: int, expected: int | None) -> None:
    """0 means never, and so does a time that is negative as a signed number."""
    reading = a_reading(a_region(LAYOUT_V1_2, last_kernel_time=stored), (b"GPU-a",))

    assert expected == container_usage(reading).last_kernel_seconds
