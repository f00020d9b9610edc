"""
The liveness note between scheduler and device plugin: `hami.io/node-handshake` and other vendors' keys.

| written by | text |
|---|---|
| scheduler up to 2.4 | `Requesting_2026.08.21 06:20:39`, also `Deleted_` |
| scheduler since 2.5 | `Requesting_2026-08-21 06:20:39`, also `Deleted_` up to 2.9 |
| NVIDIA plugin up to 2.7, DCU plugin | `Reported 2025-09-05 10:12:02.516 +0000 UTC m=+3391.3`, Go's time format |
| Ascend plugin | `Reported_2026.08.21 06:20:39` |

Times are local times of the writer, without zone except in Go's format.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/devices.go
"""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from hamicommon.model import Moment
from hamicommon.wire.errors import WHOLE_TEXT, DecodeError, EncodeError, quote
from hamicommon.wire.go.times import DASHED, DOTTED, wall_clock
from hamicommon.wire.limits import check_size
from hamicommon.wire.version import DASHED_TIME_SINCE, NEWEST, WireVersion

TIMEOUT: Final = timedelta(seconds=60)
"""After this time an unanswered request means a dead plugin, unless the kubelet still offers devices."""


class HandshakeState(Enum):
    """The state in a note; the value is its word in the text."""

    REQUESTING = "Requesting"
    REPORTED = "Reported"
    DELETED = "Deleted"


class HandshakeLayout(Enum):
    """The format of the time in a note."""

    DASHED = "YYYY-MM-DD hh:mm:ss"
    DOTTED = "YYYY.MM.DD hh:mm:ss"
    GO = "Go's time format"


@dataclass(frozen=True, slots=True)
class Handshake:
    """A note: a state, and the time on the writer's clock."""

    state: HandshakeState
    time: Moment
    """The writer's local time, without offset."""
    layout: HandshakeLayout = HandshakeLayout.DASHED
    rest: str = ""
    """The rest of Go's time format: fraction, zone and monotonic clock, verbatim."""


_NOTE: Final = re.compile(
    r"(?P<state>Requesting|Reported|Deleted)(?P<mark>[_ ])(?P<time>.*)",
    re.DOTALL,
)
_GO_TEXT: Final = re.compile(
    r"(?P<clock>[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2})"
    r"(?P<rest>(?:\.[0-9]{1,9})? [+-][0-9]{4} \S{1,40}(?: m=[+-][0-9.]{1,40})?)"
)


def decode_handshake(text: str) -> Handshake:
    """
    Return the note in *text*.

    >>> note = decode_handshake("Requesting_2026-08-21 06:20:39")
    >>> note.state, str(note.time)
    (<HandshakeState.REQUESTING: 'Requesting'>, '2026-08-21T06:20:39')

    Raises: DecodeError when no version writes such a note.
    """
    check_size(text)
    found = _NOTE.fullmatch(text)
    if not found:
        raise DecodeError(WHOLE_TEXT, f"{quote(text)} is not Requesting_, Reported or Deleted_ and a time")
    state, time = HandshakeState(found["state"]), found["time"]
    if found["mark"] == " ":
        return _go_note(state, time)
    for layout, pattern in ((HandshakeLayout.DASHED, DASHED), (HandshakeLayout.DOTTED, DOTTED)):
        clock = pattern.fullmatch(time)
        if clock:
            return Handshake(state, wall_clock(clock, "time"), layout)
    raise DecodeError("time", f"{quote(time)} is not YYYY-MM-DD hh:mm:ss, with dashes or dots")


def encode_handshake(handshake: Handshake, version: WireVersion | None = None) -> str:
    """
    Return *handshake* in its own layout, or in that of the scheduler of *version*.

    >>> encode_handshake(decode_handshake("Requesting_2026-08-21 06:20:39"), WireVersion(2, 4))
    'Requesting_2026.08.21 06:20:39'

    Raises: EncodeError for a deleted note since 2.10, which removes the annotation instead.
    """
    layout = handshake.layout
    if version is not None and handshake.state is not HandshakeState.REPORTED:
        if handshake.state is HandshakeState.DELETED and version >= NEWEST:
            raise EncodeError("state", f"{version} removes the annotation instead of writing Deleted")
        layout = HandshakeLayout.DASHED if version >= DASHED_TIME_SINCE else HandshakeLayout.DOTTED
    date, _, clock = str(handshake.time).partition("T")
    if layout is HandshakeLayout.DOTTED:
        return f"{handshake.state.value}_{date.replace('-', '.')} {clock}"
    mark = " " if layout is HandshakeLayout.GO else "_"
    return f"{handshake.state.value}{mark}{date} {clock}{handshake.rest}"


@dataclass(frozen=True, slots=True)
class HealthPlan:
    """What a scheduler does after it has read a vendor's note on a Node."""

    is_healthy: bool
    """False: remove the vendor's devices on this Node."""
    refresh: bool
    """Read the inventory again."""
    request: bool = False
    """Write `Requesting_` and the time into the note."""


def check_health(value: str | None, *, now: datetime, allocatable: int) -> HealthPlan:
    """
    Decide by the note *value* (None: no annotation) and the kubelet's *allocatable* devices.

    *now* is the scheduler's local time, as is the time in the note.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 8, 21, 12, tzinfo=UTC)
    >>> check_health("Requesting_2026-08-21 11:58:00", now=noon, allocatable=0).is_healthy
    False
    >>> check_health("Requesting_2026-08-21 11:58:00", now=noon, allocatable=8).is_healthy
    True
    """
    if value is None or "Requesting" not in value:
        return HealthPlan(is_healthy=True, refresh=True, request=True)
    clock = DASHED.fullmatch(value.partition("_")[2])
    if clock is None:
        return HealthPlan(is_healthy=True, refresh=False)
    try:
        asked = wall_clock(clock, "time")
    except DecodeError:
        return HealthPlan(is_healthy=True, refresh=False)
    return HealthPlan(is_healthy=asked.age(now) < TIMEOUT or allocatable > 0, refresh=False)


@dataclass(frozen=True, slots=True)
class Seen:
    """The last values of a Node: the kubelet's allocatable devices and the inventory's text."""

    allocatable: int = 0
    inventory: str = ""


def check_nvidia_health(
    value: str | None, *, now: datetime, allocatable: int, inventory: str, seen: Seen
) -> tuple[HealthPlan, Seen]:
    """
    Decide as `check_health`, and refresh when the count or the inventory's text changed since *seen*.

    Returns the plan and the values to remember. NVIDIA's plugin answers no note since 2.8, so the kubelet's count
    decides.
    """
    plan = check_health(value, now=now, allocatable=allocatable)
    current = Seen(allocatable, inventory)
    if allocatable == 0:
        if seen.allocatable == 0:
            return plan, seen
        return HealthPlan(is_healthy=False, refresh=plan.refresh, request=plan.request), current
    if allocatable != seen.allocatable:
        return HealthPlan(is_healthy=True, refresh=True, request=plan.request), current
    if inventory != seen.inventory:
        return HealthPlan(is_healthy=plan.is_healthy, refresh=True, request=plan.request), current
    return plan, seen


def _go_note(state: HandshakeState, time: str) -> Handshake:
    """Read a note with Go's time format."""
    found = _GO_TEXT.fullmatch(time)
    clock = DASHED.fullmatch(found["clock"]) if found else None
    if found is None or clock is None:
        raise DecodeError("time", f"{quote(time)} is not a time such as 2025-09-05 10:12:02.516 +0000 UTC")
    return Handshake(state, wall_clock(clock, "time"), HandshakeLayout.GO, found["rest"])
