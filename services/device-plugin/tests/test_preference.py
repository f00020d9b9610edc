"""
Which free replicas are preferred when no annotation names the devices.
"""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.replicas.ids import device_of_replica
from hami_device_plugin.decide.replicas.preference import (
    ALIGNED,
    DISTRIBUTED,
    PACKED,
    POLICIES,
    Preference,
    PreferredRequest,
)

FOUR = {f"GPU-{letter}": 4 for letter in "abcd"}
"""Four devices with four replicas each."""
RING = {
    "GPU-a": {"GPU-b": 100, "GPU-c": 100, "GPU-d": 200},
    "GPU-b": {"GPU-a": 100, "GPU-c": 200, "GPU-d": 100},
    "GPU-c": {"GPU-a": 100, "GPU-b": 200, "GPU-d": 200},
    "GPU-d": {"GPU-a": 200, "GPU-b": 100, "GPU-c": 200},
}


def free(**numbers: int) -> tuple[str, ...]:
    """Return that many free replicas of each device."""
    return tuple(f"GPU-{device}::{number}" for device, count in numbers.items() for number in range(count))


def devices(answer: list[str] | None) -> dict[str, int]:
    """Return how many replicas *answer* has of each device, by the device's letter."""
    assert answer is not None
    return {uuid.removeprefix("GPU-"): count for uuid, count in Counter(map(device_of_replica, answer)).items()}


@pytest.mark.parametrize(
    ("policy", "available", "size", "expected"),
    [
        pytest.param(DISTRIBUTED, free(a=4, b=4), 2, {"a": 1, "b": 1}, id="distributed: one of each"),
        pytest.param(DISTRIBUTED, free(a=4, b=4), 4, {"a": 2, "b": 2}, id="distributed: equally many of each"),
        pytest.param(DISTRIBUTED, free(a=2, b=4), 2, {"b": 2}, id="distributed: the least allocated first"),
        pytest.param(
            DISTRIBUTED, free(a=4, b=3), 2, {"a": 1, "b": 1}, id="distributed: a tie goes to the other device"
        ),
        pytest.param(PACKED, free(a=4, b=4), 4, {"a": 4}, id="packed: a whole device"),
        pytest.param(PACKED, free(a=4, b=4), 5, {"a": 4, "b": 1}, id="packed: then the next"),
        pytest.param(PACKED, free(a=4, b=1, c=2), 2, {"b": 1, "c": 1}, id="packed: the most allocated first"),
        pytest.param(
            ALIGNED, free(a=4, b=4, c=4, d=4), 2, {"a": 1, "d": 1}, id="aligned: the best pair, first of equals"
        ),
        pytest.param(
            ALIGNED, free(a=4, b=4, c=4, d=4), 1, {"a": 1}, id="aligned: one device that leaves the best rest"
        ),
        pytest.param(ALIGNED, free(a=4, b=4, c=4, d=4), 3, {"a": 1, "c": 1, "d": 1}, id="aligned: the best three"),
        pytest.param(ALIGNED, free(a=4, b=4), 3, {"a": 2, "b": 1}, id="aligned: more than devices"),
    ],
)
def test_policy_chooses_the_devices(
    policy: str, available: tuple[str, ...], size: int, expected: dict[str, int]
) -> None:
    """As NVIDIA's plugin does; the devices are linked in a ring with one diagonal."""
    answer = Preference(policy, FOUR, RING).choose(PreferredRequest(available, (), size))

    assert expected == devices(answer)


def test_replicas_that_must_be_included_come_first_and_count() -> None:
    """The next replica is of another device, or of the device that is linked best to it."""
    request = PreferredRequest(free(a=4, b=4, c=4, d=4), ("GPU-b::3",), 2)

    assert {"b": 1, "c": 1} == devices(Preference(ALIGNED, FOUR, RING).choose(request))
    assert {"b": 2} == devices(Preference(PACKED, FOUR).choose(request))
    answer = Preference(DISTRIBUTED, FOUR).choose(request)
    assert answer is not None
    assert ("GPU-b::3", {"b": 1, "a": 1}) == (answer[0], devices(answer))


def test_annotation_policy_prefers_nothing() -> None:
    """As HAMi: without an annotation the kubelet chooses."""
    assert Preference(counts=FOUR).choose(PreferredRequest(free(a=4), (), 1)) is None


def test_alignment_of_many_devices_ends_in_time() -> None:
    """56 MIG devices have a billion groups of eight."""
    counts = {f"MIG-{number}": 1 for number in range(56)}
    request = PreferredRequest(tuple(f"{device}::0" for device in counts), (), 8)

    assert [f"MIG-{number}::0" for number in range(8)] == Preference(ALIGNED, counts).choose(request)


@pytest.mark.property
@given(
    policy=st.sampled_from(POLICIES[1:]),
    available=st.lists(st.sampled_from(free(a=4, b=4, c=4, d=4)), unique=True),
    must=st.lists(st.sampled_from(free(a=4, b=4, c=4, d=4)), unique=True, max_size=3),
    size=st.integers(0, 17),
)
def test_preference_is_always_usable(policy: str, available: list[str], must: list[str], size: int) -> None:
    """Exactly as many distinct replicas as asked, all free or required, and none if there are too few."""
    answer = Preference(policy, FOUR, RING).choose(PreferredRequest(tuple(available), tuple(must), size))

    if answer is None:
        assert size < len(must) or size > len({*available, *must})
    else:
        assert size == len(answer) == len(set(answer))
        assert set(must) <= set(answer) <= {*available, *must}
