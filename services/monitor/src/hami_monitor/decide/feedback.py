"""
Decide, once a round, which containers may launch kernels, and which keep their core limit.

Owns the rules by which `recent_kernel` and `utilization_switch` follow from the recent launches on a Node.
Neighbours: `grants` gives the Pod's part, `regions` stores the writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/feedback.go
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

BLOCKED = -1
"""With `recent_kernel` below 0, every launch of the container waits."""
RELEASED = 0
LIMITED = 1
"""With `utilization_switch` 1 the container's core limit applies, with 0 it does not."""
UNLIMITED = 0
RECENT_MAX = 2
"""What a library stores at a launch. A larger count would keep its container active for longer than its launches do."""

Key = TypeVar("Key")

Activity = Mapping[str, Counter[int]]
"""By device and priority, the number of device entries of active containers."""


@dataclass(frozen=True, slots=True)
class FeedbackState:
    """What the rules read of one container, at the start of the round: its Pod's part, and two fields of its region."""

    uuids: tuple[str, ...]
    """The devices that the container was granted; empty if no grant is known."""
    priority: int
    """The Pod's; 0 is the highest."""
    recent_kernel: int
    """2 after each launch; each round counts it down; negative while blocked."""
    utilization_switch: int


@dataclass(frozen=True, slots=True)
class FeedbackWrite:
    """The new values of one region; None keeps the value."""

    recent_kernel: int | None = None
    utilization_switch: int | None = None


def plan_writes(states: Mapping[Key, FeedbackState]) -> dict[Key, FeedbackWrite]:
    """
    Return the write for each region whose values change. The order of *states* does not matter.

    A container without a known grant takes no part: a block on it ends, and its core limit stays as it is.
    """
    counted = {key: _counted_down(state.recent_kernel) for key, state in states.items()}
    activity = _activity((state, counted[key]) for key, state in states.items())
    writes = {key: _plan(state, counted[key], activity) for key, state in states.items()}
    return {key: write for key, write in writes.items() if write != FeedbackWrite()}


def _counted_down(recent_kernel: int) -> int:
    """Return *recent_kernel* one round later. If it is still positive, there was a launch since the last round."""
    return min(recent_kernel, RECENT_MAX) - 1 if recent_kernel > 0 else recent_kernel


def _activity(counted: Iterable[tuple[FeedbackState, int]]) -> Activity:
    """Count active containers by device and priority. A container that names a device twice counts twice."""
    activity: dict[str, Counter[int]] = defaultdict(Counter)
    for state, recent_kernel in counted:
        if recent_kernel > 0 and state.priority >= 0:
            for uuid in state.uuids:
                activity[uuid][state.priority] += 1
    return activity


def _plan(state: FeedbackState, counted: int, activity: Activity) -> FeedbackWrite:
    shared = [activity[uuid] for uuid in state.uuids if uuid in activity]
    is_outranked = any(min(active) < state.priority for active in shared)
    has_equal = state.priority >= 0 and any(active[state.priority] > 1 for active in shared)

    recent_kernel = counted
    if is_outranked and counted >= 0:
        recent_kernel = BLOCKED
    elif not is_outranked and counted < 0:
        recent_kernel = RELEASED
    switch = LIMITED if is_outranked or has_equal else UNLIMITED
    if not state.uuids:
        switch = state.utilization_switch
    return FeedbackWrite(
        recent_kernel=recent_kernel if recent_kernel != state.recent_kernel else None,
        utilization_switch=switch if switch != state.utilization_switch else None,
    )
