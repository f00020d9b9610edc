"""
Decide who may use how much of a device's time, once a round.

Owns the rules by which `recent_kernel` and `utilization_switch` follow from what the containers of a Node did lately.
Knows no file, no clock and no layout. Neighbours: `usage` gives the states, `regions` stores the writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/feedback.go
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

BLOCKED = -1
"""`recent_kernel` below 0 makes every launch of the container wait."""
RELEASED = 0
LIMITED = 1
"""`utilization_switch` 1 keeps the container's core limit on, 0 lifts it."""
UNLIMITED = 0
RECENT_MAX = 2047
"""A greater count is no library's (they store 2) and is taken as this."""

Key = TypeVar("Key")

Activity = Mapping[bytes, Counter[int]]
"""For each device, how many device entries of active containers each priority has."""


@dataclass(frozen=True, slots=True)
class FeedbackState:
    """The fields of one region the loop looks at, as read at the start of the round."""

    uuids: tuple[bytes, ...]
    """What the region calls its devices, without the NUL padding; empty entries left out."""
    priority: int
    """0 is served first; any integer may be stored."""
    recent_kernel: int
    """2 after each launch, counted down by the rounds; negative while blocked."""
    utilization_switch: int


@dataclass(frozen=True, slots=True)
class FeedbackWrite:
    """What one region gets; None where the field keeps its value."""

    recent_kernel: int | None = None
    utilization_switch: int | None = None


def plan_writes(states: Mapping[Key, FeedbackState]) -> dict[Key, FeedbackWrite]:
    """Return what to write into which region, only where something changes. The order of *states* does not matter."""
    counted = {key: _counted_down(state.recent_kernel) for key, state in states.items()}
    activity = _activity((state, counted[key]) for key, state in states.items())
    writes = {key: _plan(state, counted[key], activity) for key, state in states.items()}
    return {key: write for key, write in writes.items() if write != FeedbackWrite()}


def _counted_down(recent_kernel: int) -> int:
    """Return *recent_kernel* one round later. A count that stays above 0 is a launch since the round before."""
    return min(recent_kernel, RECENT_MAX) - 1 if recent_kernel > 0 else recent_kernel


def _activity(counted: Iterable[tuple[FeedbackState, int]]) -> Activity:
    """Count the active containers of each device by priority. A container that names a device twice counts twice."""
    activity: dict[bytes, Counter[int]] = defaultdict(Counter)
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
    return FeedbackWrite(
        recent_kernel=recent_kernel if recent_kernel != state.recent_kernel else None,
        utilization_switch=switch if switch != state.utilization_switch else None,
    )
