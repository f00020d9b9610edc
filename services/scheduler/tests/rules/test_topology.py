"""Which devices are taken when more are acceptable than asked."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.rules.topology import choose_by_topology
from hami_scheduler.values.attempt import ShareOption

from ..support.builders import a_share, a_use

OPTIONS = [ShareOption(a_use(), a_share(uuid)) for uuid in ("GPU-a", "GPU-b", "GPU-c")]
LINKS = {"GPU-a": {"GPU-b": 10, "GPU-c": 50}, "GPU-b": {"GPU-a": 10, "GPU-c": 20}, "GPU-c": {"GPU-a": 50, "GPU-b": 20}}


def test_best_connected_group_is_taken() -> None:
    """Several devices are those with the highest sum of ratings."""
    assert ["GPU-a", "GPU-c"] == [share.uuid for share in choose_by_topology(OPTIONS, 2, LINKS)]


def test_single_device_is_the_worst_connected() -> None:
    """Taking the loner leaves the good group to those who need one."""
    assert ["GPU-b"] == [share.uuid for share in choose_by_topology(OPTIONS, 1, LINKS)]


def test_first_group_wins_without_ratings() -> None:
    """A missing rating counts nothing, so every group ties."""
    assert ["GPU-a", "GPU-b"] == [share.uuid for share in choose_by_topology(OPTIONS, 2, {})]


def test_exactly_enough_devices_are_all_taken() -> None:
    """There is nothing to choose."""
    assert OPTIONS == choose_by_topology(OPTIONS, 3, LINKS)


@pytest.mark.property
@given(
    st.integers(1, 5).flatmap(
        lambda count: st.tuples(
            st.just(count),
            st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), min_size=6, max_size=6),
        )
    )
)
def test_link_counts_once_as_its_first_device_rates_it(drawn: tuple[int, list[list[int]]]) -> None:
    """Of all groups in order the first with the highest sum, whatever the other end of a link says."""
    count, ratings = drawn
    options = [ShareOption(a_use(), a_share(str(index))) for index in range(6)]
    scores = {str(one): {str(two): ratings[one][two] for two in range(6) if two != one} for one in range(6)}

    def rated(group: Sequence[ShareOption]) -> int:
        return sum(scores[group[i].uuid][group[k].uuid] for i in range(len(group)) for k in range(i + 1, len(group)))

    chosen = choose_by_topology(options, count, scores)
    if count > 1:
        groups = list(combinations(options, count))
        assert tuple(chosen) == groups[[rated(group) for group in groups].index(max(map(rated, groups)))]
