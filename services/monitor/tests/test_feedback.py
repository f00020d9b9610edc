"""
The rules of the feedback loop, as a table and against a plain transcription.
"""

from collections.abc import Mapping
from random import Random
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.feedback import RECENT_MAX, FeedbackState, FeedbackWrite, plan_writes

GPU_A, GPU_B = "GPU-a", "GPU-b"


Key = TypeVar("Key")


def a_state(*uuids: str, priority: int = 1, recent_kernel: int = 0, utilization_switch: int = 1) -> FeedbackState:
    """Return the state of a container, on GPU_A if no device is named."""
    return FeedbackState(uuids or (GPU_A,), priority, recent_kernel, utilization_switch)


def after(states: Mapping[Key, FeedbackState]) -> dict[Key, tuple[int, int]]:
    """Return (recent kernel, switch) of each container after one round."""
    writes = plan_writes(states)
    result = {}
    for key, state in states.items():
        write = writes.get(key, FeedbackWrite())
        recent = state.recent_kernel if write.recent_kernel is None else write.recent_kernel
        switch = state.utilization_switch if write.utilization_switch is None else write.utilization_switch
        result[key] = (recent, switch)
    return result


TABLE: list[tuple[str, dict[Any, FeedbackState], dict[Any, tuple[int, int]]]] = [
    ("lone-launched", {"a": a_state(recent_kernel=2)}, {"a": (1, 0)}),
    ("lone-idle", {"a": a_state(recent_kernel=0, utilization_switch=1)}, {"a": (0, 0)}),
    ("lone-last-round", {"a": a_state(recent_kernel=1)}, {"a": (0, 0)}),
    ("lone-was-blocked", {"a": a_state(recent_kernel=-1)}, {"a": (0, 0)}),
    ("lone-minimum", {"a": a_state(recent_kernel=-(2**31), utilization_switch=7)}, {"a": (0, 0)}),
    ("equals-both-active", {"a": a_state(recent_kernel=2), "b": a_state(recent_kernel=2)}, {"a": (1, 1), "b": (1, 1)}),
    ("equals-one-active", {"a": a_state(recent_kernel=2), "b": a_state(recent_kernel=0)}, {"a": (1, 0), "b": (0, 0)}),
    (
        "equals-two-active-limit-an-idle-third",
        {"a": a_state(recent_kernel=2), "b": a_state(recent_kernel=2), "c": a_state(utilization_switch=0)},
        {"a": (1, 1), "b": (1, 1), "c": (0, 1)},
    ),
    (
        "high-active-blocks-low",
        {"high": a_state(priority=0, recent_kernel=2), "low": a_state(priority=1, recent_kernel=2)},
        {"high": (1, 0), "low": (-1, 1)},
    ),
    (
        "high-active-blocks-idle-low",
        {"high": a_state(priority=0, recent_kernel=2), "low": a_state(priority=1, recent_kernel=0)},
        {"high": (1, 0), "low": (-1, 1)},
    ),
    (
        "high-active-keeps-low-blocked",
        {"high": a_state(priority=0, recent_kernel=2), "low": a_state(priority=1, recent_kernel=-1)},
        {"high": (1, 0), "low": (-1, 1)},
    ),
    (
        "any-negative-counts-as-blocked",
        {"high": a_state(priority=0, recent_kernel=2), "low": a_state(priority=1, recent_kernel=-9)},
        {"high": (1, 0), "low": (-9, 1)},
    ),
    (
        "high-counted-down-releases-low",
        {"high": a_state(priority=0, recent_kernel=1), "low": a_state(priority=1, recent_kernel=-1)},
        {"high": (0, 0), "low": (0, 0)},
    ),
    (
        "low-active-leaves-high-alone",
        {"high": a_state(priority=0, recent_kernel=0), "low": a_state(priority=1, recent_kernel=2)},
        {"high": (0, 0), "low": (1, 0)},
    ),
    (
        "other-device-is-no-neighbour",
        {"high": a_state(GPU_B, priority=0, recent_kernel=2), "low": a_state(GPU_A, priority=1, recent_kernel=2)},
        {"high": (1, 0), "low": (1, 0)},
    ),
    (
        "any-shared-device-blocks",
        {
            "high": a_state(GPU_B, priority=0, recent_kernel=2),
            "low": a_state(GPU_A, GPU_B, priority=1, recent_kernel=2),
        },
        {"high": (1, 0), "low": (-1, 1)},
    ),
    (
        "three-priorities",
        {p: a_state(priority=p, recent_kernel=2) for p in (3, 5, 2_000_000_000)},
        {3: (1, 0), 5: (-1, 1), 2_000_000_000: (-1, 1)},
    ),
    (
        "negative-priority-is-neither-active-nor-blocked",
        {"odd": a_state(priority=-5, recent_kernel=2), "low": a_state(priority=1, recent_kernel=2)},
        {"odd": (1, 0), "low": (1, 0)},
    ),
    ("device-named-twice-counts-twice", {"a": a_state(GPU_A, GPU_A, recent_kernel=2)}, {"a": (1, 1)}),
    ("odd-switch-is-set-right", {"a": a_state(recent_kernel=0, utilization_switch=-3)}, {"a": (0, 0)}),
]


@pytest.mark.parametrize(("states", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_round_follows_the_rules(states: dict[object, FeedbackState], expected: dict[object, tuple[int, int]]) -> None:
    """A launch counts in one round; smaller priorities block greater ones; equal ones limit each other."""
    assert expected == after(states)


@pytest.mark.parametrize("stored", [3, 2000, 2047, 2**31 - 1])
def test_one_store_is_never_worth_more_than_a_launch(stored: int) -> None:
    """A container that stores a large count is active for as long as after a launch, which is one round."""
    forged = {"forger": a_state(priority=0, recent_kernel=stored), "low": a_state(priority=1, recent_kernel=2)}
    honest = forged | {"forger": a_state(priority=0, recent_kernel=2)}

    assert after(honest) == after(forged)


@pytest.mark.parametrize(("recent", "expected"), [(2, 1), (1, 0), (0, 0), (-1, 0)])
def test_container_without_a_known_grant_takes_no_part(recent: int, expected: int) -> None:
    """It blocks nobody, a block on it ends, and its core limit stays as it is."""
    for switch in (0, 1):
        unknown = FeedbackState((), 0, recent, switch)
        states = {"unknown": unknown, "low": a_state(recent_kernel=2)}

        assert {"unknown": (expected, switch), "low": (1, 0)} == after(states)


def test_settled_node_is_not_written_to() -> None:
    """If every field has its value already, nothing is written."""
    states = {"a": a_state(GPU_A, utilization_switch=0), "b": a_state(GPU_B, utilization_switch=0)}

    assert {} == plan_writes(states)


def test_one_launch_blocks_a_lower_priority_for_one_round() -> None:
    """The library stores 2 at a launch: it counts in the next round, and no longer in the one after."""
    states = {"high": a_state(priority=0, recent_kernel=2), "low": a_state(priority=1)}
    seen = []
    for _ in range(3):
        result = after(states)
        seen.append(result["low"])
        states = {k: FeedbackState(s.uuids, s.priority, *result[k]) for k, s in states.items()}

    assert [(-1, 1), (0, 0), (0, 0)] == seen


small = st.integers(-3, RECENT_MAX) | st.integers(-(2**31), RECENT_MAX)
states_strategy = st.dictionaries(
    st.integers(0, 30),
    st.builds(
        FeedbackState,
        uuids=st.lists(st.sampled_from([GPU_A, GPU_B, "GPU-c"]), min_size=1, max_size=4).map(tuple),
        priority=st.integers(-2, 6),
        recent_kernel=small,
        utilization_switch=st.integers(-2, 2),
    ),
    max_size=7,
)


def transcription(states: Mapping[Key, FeedbackState]) -> dict[Key, tuple[int, int]]:
    """Return the result of HAMi's two passes: lists grown with zeros, fields changed in place."""
    recent = {key: state.recent_kernel for key, state in states.items()}
    switch = {key: state.utilization_switch for key, state in states.items()}
    active: dict[str, list[int]] = {}
    for key, state in states.items():
        if recent[key] > 0:
            recent[key] -= 1
            if recent[key] > 0 and state.priority >= 0:
                for uuid in state.uuids:
                    counts = active.setdefault(uuid, [])
                    counts.extend([0] * (state.priority + 1 - len(counts)))
                    counts[state.priority] += 1
    for key, state in states.items():
        shared = [active[uuid] for uuid in state.uuids if uuid in active]
        p = state.priority
        blocking = any(counts[i] > 0 for counts in shared for i in range(min(p, len(counts))))
        limiting = blocking or any(0 <= p < len(counts) and counts[p] > 1 for counts in shared)
        if blocking and recent[key] >= 0:
            recent[key] = -1
        if not blocking and recent[key] < 0:
            recent[key] = 0
        switch[key] = 1 if limiting else 0
    return {key: (recent[key], switch[key]) for key in states}


@given(states_strategy)
@pytest.mark.property
def test_any_round_agrees_with_the_transcribed_rules(states: dict[int, FeedbackState]) -> None:
    """Sparse counting gives the result of the two passes."""
    assert transcription(states) == after(states)


@given(states_strategy, st.randoms())
@pytest.mark.property
def test_order_of_containers_does_not_matter(states: dict[int, FeedbackState], random: Random) -> None:
    """A container's result depends on its neighbours, not on the order."""
    items = list(states.items())
    random.shuffle(items)

    assert plan_writes(states) == plan_writes(dict(items))


@given(states_strategy)
@pytest.mark.property
def test_every_write_changes_something_and_can_be_stored(states: dict[int, FeedbackState]) -> None:
    """A write has only values that differ, and that the store accepts."""
    for key, write in plan_writes(states).items():
        assert write.recent_kernel != states[key].recent_kernel
        assert write.utilization_switch != states[key].utilization_switch
        assert write.recent_kernel is None or -1 <= write.recent_kernel < RECENT_MAX
        assert write.utilization_switch in {None, 0, 1}
